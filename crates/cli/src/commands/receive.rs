//! `thalweg receive`: what another process sends, into a file, a folder or a stream.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use thalweg_channel::{
    Address, Error, Link, Listener,
    bulk::{Announced, Destination, Options, Receiver, Sink},
};

use super::handover::{self, Account, Clock, Counts, failure, is_interrupted};
use super::landing::Landing;
use crate::{
    args::ReceiveArgs,
    exit::{Exit, Failure},
    patience,
    progress::Meter,
};

/// How often to look whether an interrupt came while nobody has called.
const LOOK: Duration = Duration::from_millis(100);

/// Receives it.
pub fn run(args: &ReceiveArgs) -> Result<Exit, Failure> {
    let address = handover::address(&args.from)?;
    let mut landings = Landings::of(args)?;
    patience::catch_interrupts();
    let link = accept(args, &address)?;
    let clock = Clock::start();
    let options = Options {
        trust: !args.no_trust,
        stop: Some(is_interrupted),
        // One buffer, received into again and again.
        destination: Destination::Resident,
        ..Options::default()
    };
    let receiver = Receiver::over(link, &options);
    let mut receiver = receiver.map_err(|error| failure(&error, &args.from, 0))?;
    let meter = RefCell::new(None);
    let mut moved = 0;
    let handed = receiver.recv_all(&mut landings, &mut |file, now| {
        moved = now;
        let mut meter = meter.borrow_mut();
        let meter = meter.get_or_insert_with(|| {
            // The sizes of further files are not known before they come.
            Meter::new(args.shown, None, file.size.filter(|_| file.total == Some(1)))
        });
        meter.show(now);
    });
    if let Some(meter) = meter.borrow_mut().as_mut() {
        meter.finish(moved, true);
    }
    let mut counts = Counts::of(handed, moved, &args.from, Vec::new());
    if counts.seen() == 0 {
        let message = format!("{}: the sender had nothing to send", args.from);
        counts.fail(Failure::new(Exit::Partial, message));
    }
    let account = Account {
        did: "received",
        shown: args.shown,
        verbose: args.verbose,
        on_stderr: landings.is_output,
        arm: receiver.arm(),
        tuning: receiver.tuning(),
        skipped: receiver.skipped(),
        counts: &counts,
        verified: counts.verified(),
        took: clock.read(),
    };
    let told = account.tell();
    let seen = counts.seen();
    counts.exit(seen).and_then(|exit| told.map(|()| exit))
}

/// Waits for a caller of our own user; others are turned away.
fn accept(args: &ReceiveArgs, address: &Address) -> Result<Link, Failure> {
    let listener = Listener::bind(address).map_err(|error| failure(&error, &args.from, 0))?;
    let deadline = Instant::now().checked_add(args.wait.0);
    loop {
        let soon = Instant::now() + LOOK;
        match listener.accept_until(Some(deadline.map_or(soon, |deadline| deadline.min(soon)))) {
            Ok(link) => return Ok(link),
            Err(Error::NotPermitted { .. }) => {}
            Err(error @ Error::Timeout) => {
                if is_interrupted() {
                    return Err(failure(&error, &args.from, 0));
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let message = format!(
                        "{}: nobody has called; start `thalweg send --to {}`, or wait longer \
                         with --wait",
                        args.from, args.from
                    );
                    return Err(Failure::new(Exit::Partial, message));
                }
            }
            Err(error) => return Err(failure(&error, &args.from, 0)),
        }
    }
}

/// Where the files go, one after the other.
struct Landings<'a> {
    args: &'a ReceiveArgs,
    /// Opened before anybody has called, unless it is a folder.
    single: Option<Landing>,
    under_way: Option<Landing>,
    in_folder: bool,
    is_output: bool,
}

impl<'a> Landings<'a> {
    fn of(args: &'a ReceiveArgs) -> Result<Self, Failure> {
        let in_folder = args.destination.is_dir();
        let single = if in_folder { None } else { Some(Landing::open(&args.destination)?) };
        let is_output = single.as_ref().is_some_and(Landing::is_output);
        Ok(Self { args, single, under_way: None, in_folder, is_output })
    }

    fn open(&mut self, file: &Announced) -> Result<Landing, String> {
        let place = self.args.destination.display();
        if !self.in_folder {
            if file.total.is_some_and(|total| total > 1) {
                return Err(format!("{place}: not a folder, and several files are coming"));
            }
            return self.single.take().ok_or_else(|| format!("{place}: one file is there already"));
        }
        let name = file.name.as_ref();
        let name = name.ok_or_else(|| format!("{place}: a folder, and a stream has no name"))?;
        Landing::in_folder(&self.args.destination, name, self.args.force).map_err(|f| f.message)
    }
}

impl Sink for Landings<'_> {
    fn begin(&mut self, file: &Announced) -> Result<(), String> {
        let landing = self.open(file)?;
        self.under_way = Some(landing);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let landing = self.under_way.as_mut();
        landing.map_or(Ok(()), |landing| landing.write(bytes)).map_err(|failure| failure.message)
    }

    fn publish(&mut self) -> Result<(), String> {
        let landing = self.under_way.take();
        landing.map_or(Ok(()), |mut landing| landing.publish()).map_err(|failure| failure.message)
    }

    fn abandon(&mut self) {
        self.under_way = None;
    }
}
