//! `tw_producer`: the writing end of a channel.

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

/// A producer, and the size of the room lent to C.
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

    /// Returns room for a message. The room stays valid until the next commit, because no other code
    /// sends on this producer. Therefore C holds only a pointer, and `commit` takes the loan again.
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
/// The pointers must satisfy the header's requirements.
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
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, producer, names, null_mut()) };
        let (link, producer) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let options = unsafe { channel::options(options) }?;
        let opened = Producer::open_until(link, &options, options::deadline(timeout_ns));
        *producer = handle::hand_out(Outbox::new(opened?));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Offers a channel to the first process that connects.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
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
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(listener, producer, names, null_mut()) };
        let (listener, producer) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let options = unsafe { channel::options(options) }?;
        let opened = Producer::accept(listener, &options, options::deadline(timeout_ns));
        *producer = handle::hand_out(Outbox::new(opened?));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns room for a message, to be written in place.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_loan(
    producer: *mut TwProducer,
    length: usize,
    timeout_ns: i64,
    room: *mut *mut c_void,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let room = unsafe { handle::result(room, "room", null_mut()) }?;
        let loan = |outbox: &mut Outbox| outbox.loan(length, timeout_ns);
        // SAFETY: Guaranteed by the caller.
        *room = unsafe { handle::with(producer, "producer", loan) }?.cast();
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Commits the message written to the lent room.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_commit(
    producer: *mut TwProducer,
    length: usize,
    error: *mut TwError,
) -> Status {
    let commit = |outbox: &mut Outbox| outbox.commit(length);
    // SAFETY: Guaranteed by the caller.
    let body = || unsafe { handle::with(producer, "producer", commit) };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Discards the lent room.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_abort(
    producer: *mut TwProducer,
    error: *mut TwError,
) -> Status {
    let abort = |outbox: &mut Outbox| {
        let loaned = outbox.loaned.take();
        loaned.map(drop).ok_or(Failure::usage("nothing is on loan: there is nothing to give up"))
    };
    // SAFETY: Guaranteed by the caller.
    let body = || unsafe { handle::with(producer, "producer", abort) };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Sends a copy of a message.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_send(
    producer: *mut TwProducer,
    message: *const c_void,
    length: usize,
    timeout_ns: i64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let message = unsafe { handle::bytes(message, length, "message") }?;
        let send = |outbox: &mut Outbox| outbox.send(message, timeout_ns);
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(producer, "producer", send) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Waits until the consumer has released every message.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_drain(
    producer: *mut TwProducer,
    timeout_ns: i64,
    error: *mut TwError,
) -> Status {
    let drain =
        |outbox: &mut Outbox| Ok(outbox.producer.drained_until(options::deadline(timeout_ns))?);
    // SAFETY: Guaranteed by the caller.
    let body = || unsafe { handle::with(producer, "producer", drain) };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Prepares the descriptor for polling in an event loop.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_arm(
    producer: *mut TwProducer,
    length: usize,
    is_armed: *mut c_int,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let is_armed = unsafe { handle::result(is_armed, "answer", 0) }?;
        let arm = |outbox: &mut Outbox| Ok(outbox.producer.arm(length)?);
        // SAFETY: Guaranteed by the caller.
        *is_armed = unsafe { handle::with(producer, "producer", arm) }?.into();
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns the descriptor to poll; -1 for null.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_fd(producer: *const TwProducer) -> c_int {
    // SAFETY: Guaranteed by the caller.
    unsafe { link::descriptor(producer) }
}

/// Returns the size of the largest message; 0 for null.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_largest(producer: *const TwProducer) -> usize {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(producer, "", |outbox| Ok(outbox.producer.largest())) }.unwrap_or(0)
}

/// Returns the number of messages committed; 0 for null.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_sent(producer: *const TwProducer) -> u64 {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(producer, "", |outbox| Ok(outbox.producer.sent())) }.unwrap_or(0)
}

/// Closes a producer.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_producer_close(producer: *mut TwProducer) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(producer) };
}
