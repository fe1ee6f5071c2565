//! How far a command is, on standard error: a line that changes, lines of JSON, one line whenever
//! SIGUSR1 asks, or nothing. Also where an interrupt is noticed, since the driver asks here between
//! its steps.

use indicatif::{ProgressBar, ProgressState};
use std::{
    fmt::Write,
    io::IsTerminal,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, Watch};
use thalweg_tree::Progress;

use crate::{
    args::{ProgressArgs, When},
    interrupt,
    output::{
        text::{note, note_json},
        ticking::{self, style},
    },
};

mod line;
mod state;
mod status;
mod total;

pub use total::Counting;

use state::State;

const WONDER: Duration = Duration::from_millis(100);
const BETWEEN_LINES: Duration = Duration::from_millis(500);

/// Shows progress, and stops the transfer after an interrupt.
pub struct Meter {
    face: Face,
    state: Shared,
    listens: bool,
}

enum Face {
    Blank,
    Bar(ProgressBar),
    Lines { printed: Instant, json: bool },
}

/// What is known, for the thread that moves, the one that draws and the one that answers SIGUSR1.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn get(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    /// A meter for a job of about `total` bytes.
    pub fn new(args: ProgressArgs, name: Option<&str>, total: Option<u64>) -> Self {
        let state = Shared(Arc::new(Mutex::new(State::new(name, total))));
        let seen = || std::io::stderr().is_terminal();
        let printed = Instant::now();
        let face = match args.progress {
            _ if args.quiet => Face::Blank,
            When::Auto | When::Always if seen() => Face::Bar(new_bar(state.clone())),
            When::Always => Face::Lines { printed, json: false },
            When::Json => Face::Lines { printed, json: true },
            When::Auto | When::Never => Face::Blank,
        };
        Self { face, state, listens: false }
    }

    /// From now on SIGUSR1 gets its line at once, even while nothing moves.
    pub fn listen(&mut self) {
        if !self.listens {
            let bar = if let Face::Bar(bar) = &self.face { Some(bar.clone()) } else { None };
            status::answer(self.state.clone(), bar);
            self.listens = true;
        }
    }

    /// Whether the job has run for so long that a person may wonder.
    pub fn is_lasting(&self) -> bool {
        self.state.get().elapsed() >= WONDER
    }

    /// Whether what it shows is looked at.
    pub fn is_seen(&self) -> bool {
        !matches!(self.face, Face::Blank) || self.state.get().asked_for
    }

    /// The last picture: it stays, or it goes.
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

    /// Prints something that does not tear the bar.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.face {
            Face::Bar(bar) => bar.suspend(print),
            Face::Blank | Face::Lines { .. } => print(),
        }
    }

    /// Shows the bytes moved so far.
    pub fn show(&mut self, moved: u64) {
        self.state.get().advance(moved);
        self.draw();
    }

    /// Shows how far the copy of a tree is.
    pub fn show_tree(&mut self, progress: Progress) {
        self.state.get().advance_tree(progress);
        self.draw();
    }

    /// Changes what is known besides the bytes, for the next picture.
    pub fn know(&self, change: impl FnOnce(&mut State)) {
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

impl Watch for Meter {
    fn progress(&mut self, moved: u64) -> Result<(), Cancelled> {
        self.show(moved);
        interrupt::check()
    }
}

/// A line that is drawn anew from what is known: its time goes on while a slow reader holds
/// everything up.
fn new_bar(state: Shared) -> ProgressBar {
    let draw = move |_: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&line::of(&state.get(), line::width()));
    };
    ticking::new_bar(None, style("{line}").with_key("line", draw))
}
