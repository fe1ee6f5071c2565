//! The conversation with a program: a line there, a line back, within a deadline.

use std::{
    process::Command,
    time::{Duration, Instant},
};
use thalweg_core::Unfit;

use super::reply::shown;
use crate::measure::process::{Heard, Manner, Process};

/// A line of the protocol is far shorter.
const LONGEST_LINE: usize = 64 << 10;
/// To end by itself; then it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A running program, in a process group of its own, so that its helpers end with it.
pub struct Talk {
    process: Process,
    name: String,
    patience: Duration,
    /// Its last words, once an answer was none.
    said: String,
}

impl Talk {
    pub fn start(command: Command, name: String, patience: Duration) -> Result<Self, Unfit> {
        let manner = Manner { grace: GRACE, leads_group: true, longest_line: LONGEST_LINE };
        let process = Process::start(command, manner);
        let process =
            process.map_err(|e| Unfit::because(format!("{name}: cannot be started: {e}")))?;
        Ok(Self { process, name, patience, said: String::new() })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its process group, which is its own.
    pub fn group(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line and waits for the answer. `unfit REASON` comes back as the reason.
    pub fn ask(&mut self, order: &str) -> Result<String, Unfit> {
        let line = self.answer(order).map_err(|words| {
            self.said = self.process.last_words();
            self.nonsense(order, &words)
        })?;
        match line.strip_prefix("unfit ") {
            Some(reason) => Err(Unfit::because(format!("{}: {reason}", self.name))),
            None => Ok(line),
        }
    }

    fn answer(&mut self, order: &str) -> Result<String, String> {
        if let Some(early) = self.process.unasked() {
            return Err(format!("it had spoken unasked: {}", shown(&early)));
        }
        self.process.say(order).map_err(|e| format!("it cannot be told: {e}"))?;
        match self.process.hear(Instant::now() + self.patience)? {
            Heard::Line(line) => Ok(line),
            Heard::End => Err(self.process.ended()),
            Heard::Silence => {
                self.process.kill();
                Err(format!("no answer in {:?}, it was ended", self.patience))
            }
        }
    }

    /// The reason that names it, what it was asked, and its last words.
    pub fn nonsense(&self, order: &str, words: &str) -> Unfit {
        let said = &self.said;
        let tail = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        Unfit::because(format!("{}: asked to {order}: {words}{tail}", self.name))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.process.say("quit");
    }
}
