//! The common part of the Rust peers: two processes that pass bytes by one method, as a worker of a study
//! (docs/reference/formats.md). It has the structure of `two.h`, which describes the jobs. Process A
//! communicates with the lab and sends; process B receives into private memory.
//!
//! Reading order: [`words`] for the parameters, [`Way`] for the interface of a peer, `receiver` for B,
//! `sender` for A and the worker protocol, [`memory`] for buffers and checks.
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

/// The result of an operation, or the reason for its failure as text.
pub type Outcome<T = ()> = Result<T, String>;

/// One method of moving bytes from one process to the other.
pub trait Way {
    /// Sends a whole message. The caller may overwrite `from` when this returns.
    fn send(&mut self, from: &[u8]) -> Outcome;

    /// Receives a whole message into private memory.
    fn receive(&mut self, into: &mut [u8]) -> Outcome;

    /// A's part of a bulk transfer. Returns when B has all bytes.
    fn hand(&mut self, from: &[u8]) -> Outcome {
        self.send(from)?;
        self.receive(&mut [0; 8])
    }

    /// B's part of a bulk transfer.
    fn take(&mut self, into: &mut [u8]) -> Outcome {
        self.receive(into)?;
        self.send(&[0; 8])
    }

    /// B's part of a bulk transfer, into memory that the method allocates (`new=1`).
    fn take_new(&mut self) -> Outcome<Box<dyn Deref<Target = [u8]>>> {
        Err("new=1: it makes no memory".to_owned())
    }

    /// Returns memory for a source that B can access directly (`loan=1`). Repeated calls return the same
    /// memory until [`Way::hand_lent`].
    fn lent(&mut self, len: usize) -> Outcome<&mut [u8]> {
        Err(format!("loan=1: it lends no memory, {len} bytes or fewer"))
    }

    /// Like [`Way::hand`], for the lent memory.
    fn hand_lent(&mut self) -> Outcome {
        Err("loan=1: it lends no memory".to_owned())
    }
}

/// Function that connects the two processes; both call it.
pub type Meet = fn(&Setting, Side) -> Outcome<Box<dyn Way>>;

/// The main function of a peer. `keys` names the method's own parameters.
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
            // The lab reports A's line as the reason, together with standard error.
            if side == Side::Sender {
                println!("unfit {reason}");
            } else {
                eprintln!("B: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Ensures that B ends with A, and pins both if this is requested.
fn settle(setting: &Setting) -> Outcome {
    if setting.side == Side::Receiver {
        let told = set_parent_process_death_signal(Some(Signal::KILL));
        told.map_err(|e| format!("prctl: {e}"))?;
    }
    if setting.pinned { pin(setting.side) } else { Ok(()) }
}

/// Pins A to the first allowed processor, and B to the last.
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
