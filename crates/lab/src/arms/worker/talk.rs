//! The communication with a worker: one line as request, one line as answer, within a deadline.

use std::{
    process::Command,
    time::{Duration, Instant},
};
use thalweg_core::{Unfit, cadence::GRACE};

use super::reply::shown;
use thalweg_measure::process::{HeardLine, Process, ProcessManner};

/// Maximum length of a line; lines of the protocol are far shorter.
const LONGEST_LINE: usize = 64 << 10;

/// A running program in its own process group, so that its helpers can be ended together with the
/// program.
pub struct Talk {
    process: Process,
    name: String,
    patience: Duration,
    /// The end of the program's standard error, read after an invalid answer.
    said: String,
}

impl Talk {
    pub fn start(command: Command, name: String, patience: Duration) -> Result<Self, Unfit> {
        let manner = ProcessManner { grace: GRACE, leads_group: true, longest_line: LONGEST_LINE };
        let process = Process::start(command, manner);
        let process =
            process.map_err(|e| Unfit::because(format!("{name}: cannot be started: {e}")))?;
        Ok(Self { process, name, patience, said: String::new() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of its process group.
    pub fn process_group(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line and waits for the answer. The answer `unfit REASON` becomes an error.
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
            return Err(format!("it printed this before a request: {}", shown(&early)));
        }
        self.process.say(order).map_err(|e| format!("it cannot be reached: {e}"))?;
        match self.process.hear(Instant::now() + self.patience)? {
            HeardLine::Line(line) => Ok(line),
            HeardLine::End => Err(self.process.ended()),
            HeardLine::Silence => {
                self.process.kill();
                Err(format!("it did not answer within {:?} and was stopped", self.patience))
            }
        }
    }

    /// Returns an error with the worker's name, the request, and the end of its standard error.
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
