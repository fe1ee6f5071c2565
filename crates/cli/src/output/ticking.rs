//! Progress bars on standard error. Bars appear only on a terminal, and are redrawn even without progress.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{thread, time::Duration};

/// Interval at which a bar is redrawn: often enough for a spinner, rare enough for a slow terminal.
const PACE: Duration = Duration::from_millis(250);

/// Creates a style from a template.
pub fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// Creates a bar with this number of steps, which ticks until it ends.
pub fn new_bar(steps: Option<u64>, style: ProgressStyle) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
    bar.set_style(style);
    if !bar.is_hidden() {
        keep_ticking(&bar);
    }
    bar
}

/// Redraws the bar regularly from a thread. If no thread can be created, it is redrawn only on progress; indicatif's
/// own ticker would panic.
fn keep_ticking(bar: &ProgressBar) {
    let bar = bar.downgrade();
    let tick = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            thread::sleep(PACE);
        }
    };
    let _ = thread::Builder::new().name("bar".to_owned()).spawn(tick);
}
