//! `tw_consumer`: the end of a channel that reads messages.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::{null, null_mut};
use thalweg_channel::{Consumer, Held, Sample};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::{Failure, Status, TwError};
use crate::guard;
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::options;

/// A consumer, with the message that C holds.
#[derive(Debug)]
pub struct Inbox {
    lender: Lender<Consumer, Sample<'static>>,
    fd: RawFd,
}

/// `tw_consumer`, opaque to C.
pub type TwConsumer = Handle<Inbox>;

impl Inbox {
    fn new(consumer: Consumer) -> Self {
        let fd = consumer.as_fd().as_raw_fd();
        Self { lender: Lender::new(consumer), fd }
    }

    /// The next message. The caller lends it out, releases it by dropping it, or forgets it: then it
    /// comes again.
    fn next(&mut self, timeout_ns: i64) -> Result<Sample<'static>, Failure> {
        // SAFETY: what becomes of the message is decided before the next call.
        let consumer = unsafe { self.lender.idle() }?;
        match timeout_ns {
            now if options::is_now(now) => consumer.try_receive()?.ok_or(Failure::timeout()),
            _ => Ok(consumer.receive_until(options::deadline(timeout_ns))?),
        }
    }
}

/// Takes the channel that is offered over a link.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_open(
    link: *mut *mut TwLink,
    options: *const TwChannelOptions,
    timeout_ns: i64,
    consumer: *mut *mut TwConsumer,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "consumer"];
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(link, consumer, names, null_mut()) };
        let (link, consumer) = exchanged?;
        // SAFETY: the caller's promise.
        let options = unsafe { channel::options(options) }?;
        let opened = Consumer::open_until(link, &options, options::deadline(timeout_ns));
        *consumer = handle::hand_out(Inbox::new(opened?));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// The next message, where it lies.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_receive(
    consumer: *mut TwConsumer,
    timeout_ns: i64,
    message: *mut *const c_void,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let message = unsafe { handle::result(message, "message", null()) }?;
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let receive = |inbox: &mut Inbox| {
            let sample = inbox.next(timeout_ns)?;
            (*message, *length) = (sample.as_ptr().cast(), sample.len());
            inbox.lender.lend(sample);
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(consumer, "consumer", receive) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// `tw_held`, opaque to C: a message that outlives its consumer.
pub type TwHeld = Handle<Held>;

/// The next message, to be kept while others are received.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_hold(
    consumer: *mut TwConsumer,
    timeout_ns: i64,
    held: *mut *mut TwHeld,
    message: *mut *const c_void,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let place = unsafe { handle::place(held, "held message") }?;
        // SAFETY: the caller's promise.
        let message = unsafe { handle::result(message, "message", null()) }?;
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let hold = |inbox: &mut Inbox| {
            let held = inbox.next(timeout_ns)?.hold();
            // Its bytes are in the ring or on the heap, so they stay where they are when it moves.
            (*message, *length) = (held.as_ptr().cast(), held.len());
            *place = handle::hand_out(held);
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(consumer, "consumer", hold) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// How many messages are held, and whether the producer waits for that.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_held(
    consumer: *mut TwConsumer,
    messages: *mut usize,
    is_waited_for: *mut c_int,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let messages = unsafe { handle::result(messages, "number", 0) }?;
        // SAFETY: the caller's promise.
        let is_waited_for = unsafe { handle::result(is_waited_for, "answer", 0) }?;
        let ask = |inbox: &mut Inbox| {
            // SAFETY: the reader is not kept.
            let consumer = unsafe { inbox.lender.idle() }?;
            (*messages, *is_waited_for) = (consumer.held(), consumer.holds_up()?.into());
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(consumer, "consumer", ask) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Gives a message back that was held.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_held_release(held: *mut TwHeld) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(held) };
}

/// Gives the room of the message that is held back to the producer.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_release(
    consumer: *mut TwConsumer,
    error: *mut TwError,
) -> Status {
    let release = |inbox: &mut Inbox| inbox.lender.take_back();
    // SAFETY: the caller's promise.
    let body = || unsafe { handle::with(consumer, "consumer", release) };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// The next message, copied out and released.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_receive_into(
    consumer: *mut TwConsumer,
    into: *mut c_void,
    room: usize,
    timeout_ns: i64,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        // SAFETY: the caller's promise.
        let into = unsafe { handle::room(into, room, "room for a message") }?;
        let receive = |inbox: &mut Inbox| {
            let sample = inbox.next(timeout_ns)?;
            *length = sample.len();
            let Some(into) = into.get_mut(..sample.len()) else {
                let message =
                    format!("the message has {} bytes, the room {room}; it waits", sample.len());
                std::mem::forget(sample);
                return Err(Failure::new(Status::TooLarge, message));
            };
            into.copy_from_slice(&sample);
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(consumer, "consumer", receive) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Arms the descriptor for an event loop.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_arm(
    consumer: *mut TwConsumer,
    is_armed: *mut c_int,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let is_armed = unsafe { handle::result(is_armed, "answer", 0) }?;
        // SAFETY: the reader is not kept.
        let arm = |inbox: &mut Inbox| Ok(unsafe { inbox.lender.idle() }?.arm()?);
        // SAFETY: the caller's promise.
        *is_armed = unsafe { handle::with(consumer, "consumer", arm) }?.into();
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
pub unsafe extern "C" fn tw_consumer_fd(consumer: *const TwConsumer) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { handle::with(consumer, "", |inbox| Ok(inbox.fd)) }.unwrap_or(-1)
}

/// Closes a consumer: the goodbye.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_consumer_close(consumer: *mut TwConsumer) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(consumer) };
}
