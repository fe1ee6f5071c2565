//! Bars on standard error: drawn anew though nothing has moved, and not at all where no person looks.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{thread, time::Duration};

const PACE: Duration = Duration::from_millis(250);

/// A look with these parts.
pub fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// A bar of so many steps, which moves until it ends.
pub fn new_bar(steps: Option<u64>, style: ProgressStyle) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
    bar.set_style(style);
    if !bar.is_hidden() {
        keep_ticking(&bar);
    }
    bar
}

/// Where no thread can be had it changes when something has moved; indicatif's own ticker would panic
/// there.
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
