//! `tw_consumer`: the reading end of a channel.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::null;
use thalweg_channel::{Consumer, Held, Sample};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::{CallFailure, TwStatus};
use crate::guard::exported;
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::options;

/// A consumer, with the message lent to C.
#[derive(Debug)]
pub struct ConsumerEnd {
    lender: Lender<Consumer, Sample<'static>>,
    fd: RawFd,
}

/// `tw_consumer`, opaque to C.
pub type TwConsumer = Handle<ConsumerEnd>;

impl ConsumerEnd {
    fn new(consumer: Consumer) -> Self {
        let fd = consumer.as_fd().as_raw_fd();
        Self { lender: Lender::new(consumer), fd }
    }

    /// Waits for the next message. The caller must lend the message, drop it (which releases it), or leak it. A leaked
    /// message is received again.
    fn next(&mut self, timeout_ns: i64) -> Result<Sample<'static>, CallFailure> {
        // SAFETY: Each caller lends, drops or leaks the message before the next call.
        let consumer = unsafe { self.lender.idle() }?;
        match timeout_ns {
            now if options::is_now(now) => consumer.try_receive()?.ok_or(CallFailure::timeout()),
            _ => Ok(consumer.receive_until(options::deadline(timeout_ns))?),
        }
    }
}

exported! {
    /// Opens the channel that is offered over a link.
    fn tw_consumer_open(
        link: *mut *mut TwLink,
        options: *const TwChannelOptions,
        timeout_ns: i64,
        consumer: *mut *mut TwConsumer,
    ) {
        handle::open(link, consumer, ["link", "consumer"], |link| {
            let options = channel::options(options)?;
            let opened = Consumer::open_until(link, &options, options::deadline(timeout_ns));
            Ok(ConsumerEnd::new(opened?))
        })
    }

    /// Returns the next message in place.
    fn tw_consumer_receive(
        consumer: *mut TwConsumer,
        timeout_ns: i64,
        message: *mut *const c_void,
        length: *mut usize,
    ) {
        let message = handle::result(message, "message", null());
        let length = handle::result(length, "length", 0);
        let (message, length) = (message?, length?);
        let receive = |end: &mut ConsumerEnd| {
            let sample = end.next(timeout_ns)?;
            (*message, *length) = (sample.as_ptr().cast(), sample.len());
            end.lender.lend(sample);
            Ok(())
        };
        handle::with(consumer, "consumer", receive)
    }
}

/// `tw_held`, opaque to C: a message that may outlive its consumer.
pub type TwHeld = Handle<Held>;

exported! {
    /// Returns the next message and holds it while others are received.
    fn tw_consumer_hold(
        consumer: *mut TwConsumer,
        timeout_ns: i64,
        held: *mut *mut TwHeld,
        message: *mut *const c_void,
        length: *mut usize,
    ) {
        let place = handle::place(held, "held message");
        let message = handle::result(message, "message", null());
        let length = handle::result(length, "length", 0);
        let (place, message, length) = (place?, message?, length?);
        let hold = |end: &mut ConsumerEnd| {
            let held = end.next(timeout_ns)?.hold();
            // The bytes are in the ring or on the heap, so their address stays the same when `held` moves.
            (*message, *length) = (held.as_ptr().cast(), held.len());
            *place = handle::hand_out(held);
            Ok(())
        };
        handle::with(consumer, "consumer", hold)
    }

    /// Reports the number of held messages, and whether the producer waits for their room.
    fn tw_consumer_held(
        consumer: *mut TwConsumer,
        messages: *mut usize,
        is_waited_for: *mut c_int,
    ) {
        let messages = handle::result(messages, "number", 0);
        let is_waited_for = handle::result(is_waited_for, "answer", 0);
        let (messages, is_waited_for) = (messages?, is_waited_for?);
        let ask = |end: &mut ConsumerEnd| {
            // SAFETY of `idle`: the borrow of the reader ends with this closure.
            let consumer = end.lender.idle()?;
            (*messages, *is_waited_for) = (consumer.held(), consumer.holds_up()?.into());
            Ok(())
        };
        handle::with(consumer, "consumer", ask)
    }

    /// Releases a held message.
    fn tw_held_release(held: *mut TwHeld) -> () {
        handle::close(held);
    }

    /// Releases the lent message, so that the producer can reuse its room.
    fn tw_consumer_release(consumer: *mut TwConsumer) {
        let release = |end: &mut ConsumerEnd| end.lender.take_back();
        handle::with(consumer, "consumer", release)
    }

    /// Copies the next message into the caller's memory and releases it.
    fn tw_consumer_receive_into(
        consumer: *mut TwConsumer,
        into: *mut c_void,
        room: usize,
        timeout_ns: i64,
        length: *mut usize,
    ) {
        let length = handle::result(length, "length", 0)?;
        let into = handle::room(into, room, "into")?;
        let receive = |end: &mut ConsumerEnd| {
            let sample = end.next(timeout_ns)?;
            *length = sample.len();
            let Some(into) = into.get_mut(..sample.len()) else {
                let message = format!(
                    "the message has {} bytes, but the buffer only {room}; the message stays available",
                    sample.len()
                );
                std::mem::forget(sample);
                return Err(CallFailure::new(TwStatus::TooLarge, message));
            };
            into.copy_from_slice(&sample);
            Ok(())
        };
        handle::with(consumer, "consumer", receive)
    }

    /// Prepares the descriptor for polling in an event loop.
    fn tw_consumer_arm(consumer: *mut TwConsumer, is_armed: *mut c_int) {
        let is_armed = handle::result(is_armed, "answer", 0)?;
        // SAFETY of `idle`: the borrow of the reader ends with this closure.
        let arm = |end: &mut ConsumerEnd| Ok(end.lender.idle()?.arm()?);
        *is_armed = handle::with(consumer, "consumer", arm)?.into();
        Ok(())
    }

    /// Returns the descriptor to poll; -1 for null.
    fn tw_consumer_fd(consumer: *const TwConsumer) -> c_int {
        handle::with(consumer, "", |end| Ok(end.fd)).unwrap_or(-1)
    }

    /// Closes a consumer.
    fn tw_consumer_close(consumer: *mut TwConsumer) -> () {
        handle::close(consumer);
    }
}
