//! The client side of a helper process: starts it and communicates with it. If a helper dies or
//! hangs, the caller gets an error with the reason instead of waiting forever.

use std::{
    path::Path,
    time::{Duration, Instant},
};
use thalweg_core::{Unfit, cadence::REACTION};
use thalweg_sys::usage::Usage;

use crate::{
    line::spent,
    process::{self, HeardLine, Process, ProcessManner},
};

/// A helper process; dropping it ends the process.
pub struct Far {
    kind: &'static str,
    process: Process,
}

impl Far {
    /// Starts a helper of this kind.
    pub fn start(program: &Path, kind: &'static str, arguments: &[&str]) -> Result<Self, Unfit> {
        let mut command = process::helper(program, kind);
        command.args(arguments);
        let failed = |e| {
            Unfit::because(format!(
                "cannot start the helper {kind} with {}: {e}",
                program.display()
            ))
        };
        Ok(Self { kind, process: Process::start(command, ProcessManner::HELPER).map_err(failed)? })
    }

    pub fn say(&mut self, line: &str) -> Result<(), Unfit> {
        let kind = self.kind;
        self.process.say(line).map_err(|e| {
            Unfit::because(format!(
                "the {kind} (a process started by thalweg) cannot be reached: {e}"
            ))
        })
    }

    /// Reads the next line. A line `no REASON` becomes an error.
    pub fn hear(&mut self) -> Result<String, Unfit> {
        match self.process.hear(Instant::now() + REACTION) {
            Ok(HeardLine::Line(line)) => match line.strip_prefix("no ") {
                Some(reason) => Err(Unfit::because(format!("the receiver: {reason}"))),
                None => Ok(line),
            },
            Ok(HeardLine::Silence) => Err(self.odd(&format!("nothing for {REACTION:?}"))),
            Ok(HeardLine::End) => Err(self.gone()),
            Err(reason) => Err(self.odd(&format!("something unreadable: {reason}"))),
        }
    }

    pub fn hear_only(&mut self, expected: &str) -> Result<(), Unfit> {
        match self.hear()? {
            line if line == expected => Ok(()),
            line => Err(self.odd(&format!("{line:?} instead of {expected:?}"))),
        }
    }

    /// Sends a command and waits for the line `go`, which the helper sends before it starts the work.
    pub fn begin(&mut self, line: &str) -> Result<(), Unfit> {
        self.say(line)?;
        self.hear_only("go")
    }

    /// Waits until the command is done. Returns its resource usage and number of system calls.
    pub fn spent(&mut self) -> Result<(Usage, u64), Unfit> {
        let line = self.hear()?;
        spent(&line).ok_or_else(|| self.odd(&format!("{line:?}")))
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Explains why a write to the helper failed: returns the reason if the helper exits within half a second.
    pub fn last_words(&mut self) -> Option<Unfit> {
        self.process.wait(Duration::from_millis(500)).map(|_| self.gone())
    }

    pub fn odd(&self, what: &str) -> Unfit {
        Unfit::because(format!("the {} (a process started by thalweg) replied {what}", self.kind))
    }

    /// Returns how the helper exited, with the end of its standard error if it is not empty.
    fn gone(&mut self) -> Unfit {
        let (how, words) = (self.process.ended(), self.process.last_words());
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        Unfit::because(format!(
            "the {} (a process started by thalweg) has ended: {how}{words}",
            self.kind
        ))
    }
}
