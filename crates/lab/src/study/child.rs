//! One session seen from outside: the process, its job, its answers. It is gone when this returns.

use std::time::{Duration, Instant};
use thalweg_core::Cancelled;

use super::{
    result::Place,
    wire::{Event, SessionJob, SessionLog},
};
use crate::{
    helper,
    measure::process::{Heard, Manner, Process},
};

/// How often somebody is asked whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// No sample takes so long; what is silent so long hangs.
const SILENCE: Duration = Duration::from_secs(1800);

/// Why a session has no log.
#[derive(Debug)]
pub enum Failed {
    /// Somebody asked to stop.
    Cancelled,
    Wrong {
        arm: String,
        place: Place,
        reason: String,
    },
    /// The session itself could not go on.
    Broken(String),
}

impl From<Cancelled> for Failed {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Runs a session to its end, handing on what it tells meanwhile.
pub fn run(
    job: &SessionJob,
    stop: &dyn Fn() -> Result<(), Cancelled>,
    on_event: &mut dyn FnMut(&Event),
) -> Result<SessionLog, Failed> {
    let broken = |e| Failed::Broken(format!("{}: {e}", job.program.display()));
    let line = serde_json::to_string(job).map_err(|e| Failed::Broken(e.to_string()))?;
    let command = helper::command(&job.program, "session");
    let mut process = Process::start(command, Manner::HELPER).map_err(broken)?;
    process.say(&line).map_err(broken)?;
    let mut heard = Instant::now();
    loop {
        stop()?;
        let line = match process.hear(Instant::now() + LOOK).map_err(Failed::Broken)? {
            Heard::Line(line) => line,
            Heard::Silence if heard.elapsed() < SILENCE => continue,
            Heard::Silence => {
                let minutes = SILENCE.as_secs() / 60;
                return Err(Failed::Broken(format!("silent for {minutes} minutes")));
            }
            // Interrupted together with us, or broken.
            Heard::End => {
                let (how, words) = (process.ended(), process.last_words());
                stop()?;
                return Err(Failed::Broken(format!("{how}: {words}")));
            }
        };
        heard = Instant::now();
        let unreadable = |e| Failed::Broken(format!("an answer that cannot be read: {e}"));
        match serde_json::from_str(&line).map_err(unreadable)? {
            Event::Done { log } => return Ok(log),
            Event::Wrong { arm, place, reason } => {
                return Err(Failed::Wrong { arm, place, reason });
            }
            event => on_event(&event),
        }
    }
}
