//! Progress on standard error: a changing line, lines of JSON, one line per SIGUSR1, or nothing. Interrupts are also
//! noticed here, because the driver calls this module between its steps.

use indicatif::{ProgressBar, ProgressState};
use std::{
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Watch};
use thalweg_tree::Progress;

use crate::{
    args::{ProgressArgs, ProgressWhen},
    interrupt,
    output::{
        text::{note, note_json},
        ticking::{self, style},
    },
    stdio,
};

mod line;
mod state;
mod status;
mod total;

pub use total::Counting;

use state::MeterState;

/// Running time after which progress is useful; a shorter job is over before a user reads it.
const WONDER: Duration = Duration::from_millis(100);
/// Interval of progress lines. It is longer than [`PROGRESS_FLUSH`], because every line stays in a log.
///
/// [`PROGRESS_FLUSH`]: thalweg_core::cadence::PROGRESS_FLUSH
const BETWEEN_LINES: Duration = Duration::from_millis(500);

/// Shows progress, and stops the transfer after an interrupt.
pub struct ProgressMeter {
    face: Face,
    state: SharedState,
    listener: SignalListener,
}

/// State of the thread that answers SIGUSR1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignalListener {
    None,
    Postponed,
    Started,
}

enum Face {
    Blank,
    Bar(ProgressBar),
    Lines { printed: Instant, json: bool },
}

/// The state shared by the threads that move data, draw, and answer SIGUSR1.
#[derive(Clone)]
struct SharedState(Arc<Mutex<MeterState>>);

impl SharedState {
    fn get(&self) -> MutexGuard<'_, MeterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgressMeter {
    /// Creates a meter for a job of about `total` bytes.
    pub fn new(args: ProgressArgs, name: Option<&str>, total: Option<u64>) -> Self {
        let state = SharedState(Arc::new(Mutex::new(MeterState::new(name, total))));
        let printed = Instant::now();
        let face = match args.progress {
            _ if args.quiet => Face::Blank,
            ProgressWhen::Auto | ProgressWhen::Always if stdio::is_error_terminal() => {
                Face::Bar(new_bar(state.clone()))
            }
            ProgressWhen::Always => Face::Lines { printed, json: false },
            ProgressWhen::Json => Face::Lines { printed, json: true },
            ProgressWhen::Auto | ProgressWhen::Never => Face::Blank,
        };
        Self { face, state, listener: SignalListener::None }
    }

    /// Starts answering SIGUSR1 immediately, even while no data moves. If the command postpones catching interrupts, it
    /// postpones answering SIGUSR1, too.
    pub fn listen(&mut self) {
        if interrupt::is_postponed() {
            self.listener = SignalListener::Postponed;
        } else if self.listener != SignalListener::Started {
            let bar = if let Face::Bar(bar) = &self.face { Some(bar.clone()) } else { None };
            status::answer(self.state.clone(), bar);
            self.listener = SignalListener::Started;
        }
    }

    /// Returns `true` if the job has run long enough for progress to be useful.
    pub fn is_lasting(&self) -> bool {
        self.state.get().elapsed() >= WONDER
    }

    /// Returns `true` if the progress is shown, or was requested.
    pub fn is_seen(&self) -> bool {
        !matches!(self.face, Face::Blank) || self.state.get().asked_for
    }

    /// Draws the final state. `stays`: `true` to keep the line on the terminal.
    pub fn finish(&mut self, moved: u64, stays: bool) {
        {
            let mut state = self.state.get();
            state.advance(moved);
            state.over = true;
        }
        match &self.face {
            Face::Blank => {}
            Face::Bar(bar) if stays => bar.abandon(),
            Face::Bar(bar) => bar.finish_and_clear(),
            Face::Lines { json, .. } => self.line(*json),
        }
    }

    /// Runs `print` while the bar is hidden, so that its output does not mix with the bar.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.face {
            Face::Bar(bar) => bar.suspend(print),
            Face::Blank | Face::Lines { .. } => print(),
        }
    }

    pub fn show(&mut self, moved: u64) {
        self.state.get().advance(moved);
        self.draw();
    }

    pub fn show_tree(&mut self, progress: Progress) {
        self.state.get().advance_tree(progress);
        self.draw();
    }

    /// Changes other parts of the state, which are shown with the next update.
    pub fn know(&self, change: impl FnOnce(&mut MeterState)) {
        change(&mut self.state.get());
    }

    fn draw(&mut self) {
        match &mut self.face {
            Face::Blank => {}
            Face::Bar(bar) => {
                let moved = self.state.get().moved;
                bar.set_position(moved);
            }
            Face::Lines { printed, .. } if printed.elapsed() < BETWEEN_LINES => {}
            Face::Lines { printed, json } => {
                *printed = Instant::now();
                let json = *json;
                self.line(json);
            }
        }
    }

    fn line(&self, json: bool) {
        let state = self.state.get();
        if json { note_json(&state.json().to_string()) } else { note(&state.sentence()) }
    }
}

impl Watch for ProgressMeter {
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled> {
        self.show(moved);
        let checked = interrupt::check();
        if self.listener == SignalListener::Postponed {
            self.listen();
        }
        checked
    }
}

/// Creates a bar that is redrawn from the state. Its clock advances even while a slow reader blocks the transfer.
fn new_bar(state: SharedState) -> ProgressBar {
    let draw = move |_: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&line::of(&state.get(), line::width()));
    };
    ticking::new_bar(None, style("{line}").with_key("line", draw))
}
