//! `thalweg receive`: receives files from another process into a file, a directory or a stream.

mod args;
mod files;

use std::{cell::RefCell, time::Instant};
use thalweg_channel::{
    Address, Error, Listener,
    bulk::{self, Options, Receiver},
};

pub use args::ReceiveArgs;
use files::Receiving;

use super::{
    Subcommand,
    transfer_report::{
        self, SoFar, TransferAccount, TransferClock, TransferCounts, UsedMethod, failure,
    },
};
use crate::{
    exit::{CommandFailure, Exit},
    interrupt::{self, is_interrupted},
    output::text::{AnswerStream, complain},
    progress::ProgressMeter,
};

impl Subcommand for ReceiveArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        let carries_data = self.destination.as_os_str() == "-";
        self.shown.json.then(|| AnswerStream::beside(carries_data))
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let address = transfer_report::address(&self.from)?;
        let mut receiving = Receiving::of(self)?;
        interrupt::catch();
        let options = Options {
            trust: !self.no_trust,
            stop: Some(is_interrupted),
            // A single buffer is reused for all data.
            destination: bulk::Destination::Resident,
            ..Options::default()
        };
        let (mut receiver, clock) = called(self, &address, &options)?;
        let meter = RefCell::new(None);
        let mut moved = 0;
        let handed = receiver.recv_all(&mut receiving, &mut |file, now| {
            moved = now;
            let mut meter = meter.borrow_mut();
            let meter = meter.get_or_insert_with(|| {
                // With several files, the sizes of later ones are unknown.
                let size = file.size.filter(|_| file.total == Some(1));
                let mut meter = ProgressMeter::new(self.shown, None, size);
                meter.listen();
                meter
            });
            meter.show(now);
        });
        if let Some(meter) = meter.borrow_mut().as_mut() {
            meter.finish(moved, true);
        }
        let missing = handed.as_ref().map_or(0, |handed| handed.missing);
        let so_far = SoFar { bytes: moved, ..receiving.so_far };
        let mut counts = TransferCounts::of(handed, &so_far, &self.from, Vec::new());
        let seen = counts.seen();
        if let Some(failure) = self.incomplete(seen, missing) {
            counts.end(failure);
        }
        let account = TransferAccount {
            did: "received",
            shown: self.shown,
            verbose: self.verbose,
            on_stderr: self.destination.as_os_str() == "-",
            way: UsedMethod::of(
                &counts.from_open,
                counts.bytes,
                receiver.mechanism(),
                receiver.tuning(),
            ),
            notes: &receiving.notes,
            choice: None,
            skipped: receiver.skipped(),
            counts: &counts,
            verified: counts.verified(),
            took: clock.read(),
        };
        let printed = account.print();
        counts.exit(seen).and_then(|exit| printed.map(|()| exit))
    }
}

impl ReceiveArgs {
    /// Returns the failure if files are missing. `seen`: number of files that arrived or failed; `missing`: number of
    /// files that were not sent.
    fn incomplete(&self, seen: usize, missing: u64) -> Option<CommandFailure> {
        let why = match (seen, missing) {
            (0, _) => "the sender sent no file; see its messages for the reason".to_owned(),
            (_, 0) => return None,
            _ => format!(
                "received {seen} of {} announced files; see the sender's messages for the reason",
                seen as u64 + missing
            ),
        };
        Some(CommandFailure::new(Exit::Failed, format!("'{}': {why}", self.from)))
    }
}

/// Waits for a sender of the same user. The clock starts when the sender has connected.
fn called(
    args: &ReceiveArgs,
    address: &Address,
    options: &Options,
) -> Result<(Receiver, TransferClock), CommandFailure> {
    let listener = Listener::bind(address).map_err(|error| failure(&error, &args.from))?;
    let deadline = Instant::now().checked_add(args.wait);
    let refused = &mut |process, error: &Error| {
        let what = match error {
            _ if is_interrupted() => return,
            Error::Timeout => "sent nothing".to_owned(),
            Error::PeerDied { .. } => "ended".to_owned(),
            error => format!("was refused: {error}"),
        };
        complain(&format!("'{}': process {process} {what}; waiting for another sender", args.from));
    };
    let receiver = Receiver::accept(&listener, options, deadline, refused);
    match receiver {
        Ok(receiver) => Ok((receiver, TransferClock::start())),
        Err(_) if is_interrupted() => Err(failure(&Error::Timeout, &args.from)),
        Err(Error::Timeout) => {
            let message = format!("'{}': no sender", args.from);
            let hint = format!("start `thalweg send --to {}`, or use --wait", args.from);
            Err(CommandFailure::new(Exit::Failed, message).hint(hint))
        }
        Err(error) => Err(failure(&error, &args.from)),
    }
}
