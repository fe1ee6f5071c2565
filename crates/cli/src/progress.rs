//! How far a transfer is, on standard error: a bar, lines of JSON, or nothing. Also where an
//! interrupt is noticed, since the driver asks here between its steps.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::json;
use std::{
    fmt::Write,
    io::IsTerminal,
    time::{Duration, Instant},
};
use thalweg_core::{Flow, Watch};
use thalweg_sys::signal;

use crate::{
    args::{ProgressArgs, When},
    output::{
        text::{note, note_json},
        ticking::keep_ticking,
        units,
    },
};

const TICK: Duration = Duration::from_millis(250);
const BETWEEN_LINES: Duration = Duration::from_millis(500);

/// Shows progress, and stops the transfer after an interrupt.
pub struct Meter {
    face: Face,
    total: Option<u64>,
    began: Instant,
}

enum Face {
    Blank,
    Bar(ProgressBar),
    Lines { printed: Instant, json: bool },
}

impl Meter {
    /// A meter for a job of about `total` bytes.
    pub fn new(args: ProgressArgs, name: Option<&str>, total: Option<u64>) -> Self {
        let began = Instant::now();
        let seen = || std::io::stderr().is_terminal();
        let face = match args.progress {
            _ if args.quiet => Face::Blank,
            When::Auto | When::Always if seen() => {
                Face::Bar(new_bar(name.unwrap_or_default(), total))
            }
            When::Always => Face::Lines { printed: began, json: false },
            When::Json => Face::Lines { printed: began, json: true },
            When::Auto | When::Never => Face::Blank,
        };
        Self { face, total, began }
    }

    /// The last picture: it stays, or it goes.
    pub fn finish(&mut self, moved: u64, stays: bool) {
        match &self.face {
            Face::Blank => {}
            Face::Bar(bar) => {
                bar.set_position(moved);
                if stays { bar.abandon() } else { bar.finish_and_clear() }
            }
            Face::Lines { json, .. } => self.line(moved, *json, true),
        }
    }

    /// Prints something that does not tear the bar.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.face {
            Face::Bar(bar) => bar.suspend(print),
            Face::Blank | Face::Lines { .. } => print(),
        }
    }

    /// Shows the bytes moved so far.
    pub fn show(&mut self, moved: u64) {
        match &mut self.face {
            Face::Blank => {}
            Face::Bar(bar) => bar.set_position(moved),
            Face::Lines { printed, .. } if printed.elapsed() < BETWEEN_LINES => {}
            Face::Lines { printed, json } => {
                *printed = Instant::now();
                let json = *json;
                self.line(moved, json, false);
            }
        }
    }

    fn line(&self, moved: u64, json: bool, done: bool) {
        let took = self.began.elapsed();
        let seconds = took.as_secs_f64();
        let rate = moved as f64 / seconds.max(1e-9);
        let left = self.total.map(|total| total.saturating_sub(moved) as f64 / rate);
        let eta = left.filter(|left| left.is_finite());
        if !json {
            let (bytes, rate) = (units::bytes(moved), units::rate(moved, took));
            let left = eta.map(|left| Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX));
            let left =
                left.map_or(String::new(), |left| format!(", left {}", units::duration(left)));
            return note(&format!("{bytes} in {}, {rate}{left}", units::duration(took)));
        }
        let line = json!({
            "progress": { "bytes": moved, "total": self.total, "seconds": seconds,
                          "bytes_per_second": rate, "eta_seconds": eta, "done": done }
        });
        note_json(&line.to_string());
    }
}

impl Watch for Meter {
    fn progress(&mut self, moved: u64) -> Flow {
        self.show(moved);
        if signal::interrupted() { Flow::Stop } else { Flow::Continue }
    }
}

/// Bytes, time, rate now, rate on average, and with a total the part done and the time left.
fn new_bar(name: &str, total: Option<u64>) -> ProgressBar {
    let end = match total {
        Some(_) => " {wide_bar} {percent:>3}% left {eta}",
        None => "",
    };
    let label = if name.is_empty() { "" } else { "{prefix}: " };
    let template = format!(
        "{label}{{binary_bytes}} {{elapsed_precise}} {{binary_bytes_per_sec}} (average {{average}}){end}"
    );
    let style = ProgressStyle::with_template(&template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
        .with_key("average", |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&units::rate(state.pos(), state.elapsed()));
        });
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar.set_prefix(name.to_owned());
    // The time goes on while a slow reader holds everything up.
    keep_ticking(&bar, TICK);
    bar
}
