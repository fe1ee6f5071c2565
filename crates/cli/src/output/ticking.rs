//! A bar that is drawn anew though nothing has moved.

use indicatif::ProgressBar;
use std::{thread, time::Duration};

/// Redraws the bar at this pace until it ends. Where no thread can be had it changes when something has
/// moved; indicatif's own ticker would panic there.
pub fn keep_ticking(bar: &ProgressBar, pace: Duration) {
    let bar = bar.downgrade();
    let tick = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            thread::sleep(pace);
        }
    };
    let _ = thread::Builder::new().name("bar".to_owned()).spawn(tick);
}
