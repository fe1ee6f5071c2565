//! `tw_producer`: the end of a channel that writes messages.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use thalweg_channel::Producer;

use crate::channel::{self, TwChannelOptions};
use crate::error::{Failure, Status, TwError};
use crate::guard;
use crate::handle::{self, Handle};
use crate::link::{self, TwLink, TwListener};
use crate::options;

/// A producer, and how much room in it C has on loan.
#[derive(Debug)]
pub struct Outbox {
    producer: Producer,
    loaned: Option<usize>,
}

/// `tw_producer`, opaque to C.
pub type TwProducer = Handle<Outbox>;

impl Outbox {
    fn new(producer: Producer) -> Self {
        Self { producer, loaned: None }
    }

    /// Room for a message. It stays there until the next one is committed, for nobody else sends: so
    /// what C holds is a pointer, and the loan itself is taken up again when it is committed.
    fn loan(&mut self, length: usize, timeout_ns: i64) -> Result<*mut u8, Failure> {
        self.idle()?;
        let room = if options::is_now(timeout_ns) {
            self.producer.try_loan(length)
        } else {
            self.producer.loan_until(length, options::deadline(timeout_ns)).map(Some)
        };
        let mut room = room.map_err(too_large)?.ok_or(Failure::timeout())?;
        let start = room.as_mut_ptr();
        self.loaned = Some(length);
        Ok(start)
    }

    fn commit(&mut self, length: usize) -> Result<(), Failure> {
        let room =
            self.loaned.ok_or(Failure::usage("nothing is on loan: there is nothing to commit"))?;
        if length > room {
            let message =
                format!("{length} bytes are more than the {room} on loan; it stays on loan");
            return Err(Failure::usage(message));
        }
        self.loaned = None;
        let again = self.producer.try_loan(length)?;
        let again = again.ok_or(Failure::new(Status::Internal, "the room on loan is gone"))?;
        Ok(again.commit()?)
    }

    fn send(&mut self, message: &[u8], timeout_ns: i64) -> Result<(), Failure> {
        self.idle()?;
        if options::is_now(timeout_ns) {
            let sent = self.producer.try_send(message).map_err(too_large)?;
            return if sent { Ok(()) } else { Err(Failure::timeout()) };
        }
        let deadline = options::deadline(timeout_ns);
        self.producer.send_until(message, deadline).map_err(too_large)
    }

    fn idle(&self) -> Result<(), Failure> {
        match self.loaned {
            None => Ok(()),
            Some(_) => Err(Failure::usage("room is on loan: commit it or give it up first")),
        }
    }
}

fn too_large(error: thalweg_channel::Error) -> Failure {
    let is_large = matches!(error, thalweg_channel::Error::TooLarge { .. });
    let failure = Failure::from(error);
    if is_large { failure.hint("; for larger buffers there is tw_sender") } else { failure }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.producer.as_fd()
    }
}

/// Offers a channel over a link.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_open(
    link: *mut *mut TwLink,
    options: *const TwChannelOptions,
    timeout_ns: i64,
    producer: *mut *mut TwProducer,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "producer"];
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(link, producer, names, null_mut()) };
        let (link, producer) = exchanged?;
        // SAFETY: the caller's promise.
        let options = unsafe { channel::options(options) }?;
        let opened = Producer::open_until(link, &options, options::deadline(timeout_ns));
        *producer = handle::hand_out(Outbox::new(opened?));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Offers a channel to the first that comes.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_accept(
    listener: *mut *mut TwListener,
    options: *const TwChannelOptions,
    timeout_ns: i64,
    producer: *mut *mut TwProducer,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["listener", "producer"];
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(listener, producer, names, null_mut()) };
        let (listener, producer) = exchanged?;
        // SAFETY: the caller's promise.
        let options = unsafe { channel::options(options) }?;
        let opened = Producer::accept(listener, &options, options::deadline(timeout_ns));
        *producer = handle::hand_out(Outbox::new(opened?));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Room for a message, to be written in place.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_loan(
    producer: *mut TwProducer,
    length: usize,
    timeout_ns: i64,
    room: *mut *mut c_void,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let room = unsafe { handle::result(room, "room", null_mut()) }?;
        let loan = |outbox: &mut Outbox| outbox.loan(length, timeout_ns);
        // SAFETY: the caller's promise.
        *room = unsafe { handle::with(producer, "producer", loan) }?.cast();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Makes what was written on loan visible.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_commit(
    producer: *mut TwProducer,
    length: usize,
    error: *mut TwError,
) -> Status {
    let commit = |outbox: &mut Outbox| outbox.commit(length);
    // SAFETY: the caller's promise.
    let body = || unsafe { handle::with(producer, "producer", commit) };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Gives up what is on loan.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_abort(
    producer: *mut TwProducer,
    error: *mut TwError,
) -> Status {
    let abort = |outbox: &mut Outbox| {
        let loaned = outbox.loaned.take();
        loaned.map(drop).ok_or(Failure::usage("nothing is on loan: there is nothing to give up"))
    };
    // SAFETY: the caller's promise.
    let body = || unsafe { handle::with(producer, "producer", abort) };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Sends a copy of a message.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_send(
    producer: *mut TwProducer,
    message: *const c_void,
    length: usize,
    timeout_ns: i64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let message = unsafe { handle::bytes(message, length, "message") }?;
        let send = |outbox: &mut Outbox| outbox.send(message, timeout_ns);
        // SAFETY: the caller's promise.
        unsafe { handle::with(producer, "producer", send) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Waits until every message was released.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_drain(
    producer: *mut TwProducer,
    timeout_ns: i64,
    error: *mut TwError,
) -> Status {
    let drain =
        |outbox: &mut Outbox| Ok(outbox.producer.drained_until(options::deadline(timeout_ns))?);
    // SAFETY: the caller's promise.
    let body = || unsafe { handle::with(producer, "producer", drain) };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Arms the descriptor for an event loop.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_arm(
    producer: *mut TwProducer,
    length: usize,
    is_armed: *mut c_int,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let is_armed = unsafe { handle::result(is_armed, "answer", 0) }?;
        let arm = |outbox: &mut Outbox| Ok(outbox.producer.arm(length)?);
        // SAFETY: the caller's promise.
        *is_armed = unsafe { handle::with(producer, "producer", arm) }?.into();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// What to poll; -1 for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_fd(producer: *const TwProducer) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { link::descriptor(producer) }
}

/// The largest message; 0 for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_largest(producer: *const TwProducer) -> usize {
    // SAFETY: the caller's promise.
    unsafe { handle::with(producer, "", |outbox| Ok(outbox.producer.largest())) }.unwrap_or(0)
}

/// Messages committed; 0 for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_sent(producer: *const TwProducer) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { handle::with(producer, "", |outbox| Ok(outbox.producer.sent())) }.unwrap_or(0)
}

/// Closes a producer: the goodbye.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_close(producer: *mut TwProducer) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(producer) };
}
