//! Two processes that pass bytes by one way, as a worker of a study (docs/reference/formats.md): the skeleton
//! of the Rust peers, built like `two.h`, which says what the jobs are. A speaks with the lab and
//! sends, B receives into memory of its own.
//!
//! Reading order: [`words`] are the parameters, [`Way`] is what a peer provides, `receiver` is B,
//! `sender` is A and the worker protocol, [`memory`] the buffers and what is checked.
#![forbid(unsafe_code)]

pub mod memory;
mod receiver;
mod sender;
pub mod words;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::Deref;
use std::process::ExitCode;
use words::{Setting, Side};

/// How something went, with the reason in words.
pub type Outcome<T = ()> = Result<T, String>;

/// One way for bytes to get from one process to the other.
pub trait Way {
    /// A whole message; returns when `from` may be overwritten.
    fn send(&mut self, from: &[u8]) -> Outcome;

    /// A whole message, into memory of this process alone.
    fn receive(&mut self, into: &mut [u8]) -> Outcome;

    /// A's part of a bulk transfer: returns when all of it is B's.
    fn hand(&mut self, from: &[u8]) -> Outcome {
        self.send(from)?;
        self.receive(&mut [0; 8])
    }

    /// B's part.
    fn take(&mut self, into: &mut [u8]) -> Outcome {
        self.receive(into)?;
        self.send(&[0; 8])
    }

    /// B's part, into memory that the way makes (`new=1`).
    fn take_new(&mut self) -> Outcome<Box<dyn Deref<Target = [u8]>>> {
        Err("new=1: it makes no memory".to_owned())
    }

    /// Memory for a source that is born where B can see it (`loan=1`); the same one until
    /// [`Way::hand_lent`].
    fn lent(&mut self, len: usize) -> Outcome<&mut [u8]> {
        Err(format!("loan=1: it lends no memory, {len} bytes or fewer"))
    }

    /// As [`Way::hand`], of what was lent.
    fn hand_lent(&mut self) -> Outcome {
        Err("loan=1: it lends no memory".to_owned())
    }
}

/// Makes the connection, in both processes.
pub type Meet = fn(&Setting, Side) -> Outcome<Box<dyn Way>>;

/// The program: the way knows the parameters `keys` besides those of the skeleton.
pub fn main_of(keys: &[&str], meet: Meet) -> ExitCode {
    let setting = Setting::of_arguments(keys);
    let side = setting.as_ref().map_or(Side::Sender, |setting| setting.side);
    let done = match side {
        Side::Sender => sender::main(setting, meet),
        Side::Receiver => setting.and_then(|setting| receiver::main(&setting, meet)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // The lab shows A's line as the reason, and standard error beside it.
            if side == Side::Sender {
                println!("unfit {reason}");
            } else {
                eprintln!("B: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

/// B ends with A; both go where they are to run.
fn settle(setting: &Setting) -> Outcome {
    if setting.side == Side::Receiver {
        let told = set_parent_process_death_signal(Some(Signal::KILL));
        told.map_err(|e| format!("prctl: {e}"))?;
    }
    if setting.pinned { pin(setting.side) } else { Ok(()) }
}

/// A on the first processor that is allowed, B on the last.
fn pin(side: Side) -> Outcome {
    let allowed = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
    let mut numbers = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n));
    let (first, last) = (numbers.next(), numbers.last());
    let (Some(first), Some(last)) = (first, last) else {
        return Err("pin=1 wants two processors, and one may be used".to_owned());
    };
    let mut one = CpuSet::new();
    one.set(if side == Side::Sender { first } else { last });
    sched_setaffinity(None, &one).map_err(|e| format!("sched_setaffinity: {e}"))
}
