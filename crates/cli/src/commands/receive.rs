//! `thalweg receive`: what another process sends, into a file or a stream.

use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use thalweg_channel::{
    Address, Error, Link, Listener,
    bulk::{Options, Receiver, buffer},
};
use thalweg_sys::signal;
use xxhash_rust::xxh3::Xxh3;

use super::handover::{self, Account, Clock, Head, Tail, VERSION, failure, is_interrupted};
use super::landing::Landing;
use crate::{
    args::ReceiveArgs,
    exit::{Exit, Failure},
    patience,
    progress::Meter,
};

/// How often to look whether an interrupt came while nobody has called.
const LOOK: Duration = Duration::from_millis(100);
/// The most bytes of a head or a tail, and of a buffer: a sender can claim anything.
const MOST_WORDS: usize = 4096;

/// Receives it.
pub fn run(args: &ReceiveArgs) -> Result<Exit, Failure> {
    let address = handover::address(&args.from)?;
    let mut landing = Landing::open(&args.destination)?;
    patience::catch_interrupts();
    let link = accept(args, &address)?;
    let clock = Clock::start();
    let options =
        Options { trust: !args.no_trust, stop: Some(is_interrupted), ..Options::default() };
    let receiver = Receiver::over(link, &options);
    let mut receiver = receiver.map_err(|error| failure(&error, &args.from, 0))?;
    let mut moved = 0;
    let mut meter = None;
    let outcome = receive(&mut receiver, &mut landing, args, (&mut meter, &mut moved));
    if let Some(meter) = &mut meter {
        meter.finish(moved, true);
    }
    let outcome = outcome.and_then(|()| landing.publish());
    let error = outcome.as_ref().err().map(|failure| failure.message.clone());
    let verified = match &outcome {
        Ok(()) => Some(true),
        Err(failure) if failure.exit == Exit::Differ => Some(false),
        Err(_) => None,
    };
    let account = Account {
        shown: args.shown,
        verbose: args.verbose,
        on_stderr: landing.is_output(),
        arm: receiver.arm(),
        tuning: receiver.tuning(),
        skipped: receiver.skipped(),
        bytes: moved,
        verified,
        error: error.as_deref(),
        took: clock.read(),
    };
    let told = account.tell();
    outcome.and(told).map(|()| Exit::Done)
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

fn receive(
    receiver: &mut Receiver,
    landing: &mut Landing,
    args: &ReceiveArgs,
    (meter, moved): (&mut Option<Meter>, &mut u64),
) -> Result<(), Failure> {
    let lost = |error: &Error, moved: u64| failure(error, &args.from, moved);
    let head: Head = words(receiver, args)?;
    if head.thalweg != VERSION {
        let message =
            format!("{}: the sender speaks version {}, not {VERSION}", args.from, head.thalweg);
        return Err(Failure::new(Exit::Unsupported, message));
    }
    let meter = meter.insert(Meter::new(args.shown, None, head.size));
    let mut hasher = Xxh3::new();
    let mut memory = None;
    loop {
        let len = receiver.next_len().map_err(|e| lost(&e, *moved))?;
        let len = len.ok_or_else(|| lost(&Error::Closed { delivered: 0 }, *moved))?;
        if len > head.buffer {
            let message = format!("{}: a buffer longer than the sender had said", args.from);
            return Err(Failure::new(Exit::Partial, message));
        }
        let into = match &mut memory {
            Some(memory) => memory,
            // Made once: received into again and again it is resident.
            None => memory.insert(room(head.buffer, args)?),
        };
        let count = receiver.recv_into(into).map_err(|e| lost(&e, *moved))?;
        if count == 0 {
            break;
        }
        hasher.update(&into[..count]);
        landing.write(&into[..count])?;
        *moved += count as u64;
        meter.show(*moved);
        if let Some(signal) = signal::which() {
            let message = format!("{}: interrupted after {moved} bytes", args.from);
            return Err(Failure::new(Exit::Signal(signal), message));
        }
    }
    let tail: Tail = words(receiver, args)?;
    let own = Tail::of(*moved, &hasher);
    if tail == own {
        return Ok(());
    }
    let message = format!(
        "{}: the data differ: {} bytes with XXH3 {} were sent, {} bytes with {} came; nothing was \
         published",
        args.from, tail.bytes, tail.xxh3, own.bytes, own.xxh3
    );
    Err(Failure::new(Exit::Differ, message))
}

/// Memory for a buffer of the sender's size, if there is that much.
fn room(len: u64, args: &ReceiveArgs) -> Result<thalweg_channel::bulk::Buffer, Failure> {
    let most = thalweg_sys::host::memory_available().unwrap_or(u64::MAX);
    let whole = usize::try_from(len).ok().filter(|_| len <= most);
    let whole = whole.ok_or_else(|| {
        let message = format!(
            "{}: the sender's buffers have {len} bytes, and {most} are free; send with a smaller \
             --buffer",
            args.from
        );
        Failure::new(Exit::Partial, message)
    })?;
    buffer(whole).map_err(|errno| Failure::of_call("mmap", "a buffer", errno))
}

/// A head or a tail.
fn words<T: DeserializeOwned>(receiver: &mut Receiver, args: &ReceiveArgs) -> Result<T, Failure> {
    let mut bytes = [0; MOST_WORDS];
    let len = receiver.recv_into(&mut bytes).map_err(|error| failure(&error, &args.from, 0))?;
    serde_json::from_slice(&bytes[..len]).map_err(|error| {
        let message = format!("{}: the sender is no `thalweg send`: {error}", args.from);
        Failure::new(Exit::Partial, message)
    })
}
