//! `tw_producer`: the writing end of a channel.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use thalweg_channel::{DetachedLoan, Producer};

use crate::channel::{self, TwChannelOptions};
use crate::error::CallFailure;
use crate::guard::exported;
use crate::handle::{self, Handle};
use crate::link::{self, TwLink, TwListener};
use crate::options;

/// A producer, and the loan to which C currently writes.
#[derive(Debug)]
pub struct ProducerEnd {
    producer: Producer,
    loaned: Option<DetachedLoan>,
}

/// `tw_producer`, opaque to C.
pub type TwProducer = Handle<ProducerEnd>;

impl ProducerEnd {
    fn new(producer: Producer) -> Self {
        Self { producer, loaned: None }
    }

    /// Returns room for a message. The room stays valid until the next commit, because only this handle uses the
    /// producer.
    fn loan(&mut self, length: usize, timeout_ns: i64) -> Result<*mut u8, CallFailure> {
        self.idle()?;
        let room = if options::is_now(timeout_ns) {
            self.producer.try_loan(length)
        } else {
            self.producer.loan_until(length, options::deadline(timeout_ns)).map(Some)
        };
        let mut room = room.map_err(too_large)?.ok_or(CallFailure::timeout())?;
        let start = room.as_mut_ptr();
        self.loaned = Some(room.detach());
        Ok(start)
    }

    fn commit(&mut self, length: usize) -> Result<(), CallFailure> {
        let room = self.loaned.as_ref().map(DetachedLoan::len);
        if let Some(room) = room.filter(|room| length > *room) {
            let message = format!(
                "cannot commit {length} bytes: the loan has only {room} bytes and stays open"
            );
            return Err(CallFailure::usage(message));
        }
        let loan = self.loaned.take();
        let loan = loan.ok_or(CallFailure::usage("no slot is loaned: nothing to commit"))?;
        let mut loan = self.producer.attach(loan)?;
        loan.truncate(length);
        Ok(loan.commit()?)
    }

    fn send(&mut self, message: &[u8], timeout_ns: i64) -> Result<(), CallFailure> {
        self.idle()?;
        if options::is_now(timeout_ns) {
            let sent = self.producer.try_send(message).map_err(too_large)?;
            return if sent { Ok(()) } else { Err(CallFailure::timeout()) };
        }
        let deadline = options::deadline(timeout_ns);
        self.producer.send_until(message, deadline).map_err(too_large)
    }

    fn idle(&self) -> Result<(), CallFailure> {
        match self.loaned {
            None => Ok(()),
            Some(_) => Err(CallFailure::usage("a slot is loaned: commit it or abort it first")),
        }
    }
}

fn too_large(error: thalweg_channel::Error) -> CallFailure {
    let is_large = matches!(error, thalweg_channel::Error::TooLarge { .. });
    let failure = CallFailure::from(error);
    if is_large { failure.hint("; use tw_sender for larger buffers") } else { failure }
}

impl AsFd for ProducerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.producer.as_fd()
    }
}

exported! {
    /// Offers a channel over a link.
    fn tw_producer_open(
        link: *mut *mut TwLink,
        options: *const TwChannelOptions,
        timeout_ns: i64,
        producer: *mut *mut TwProducer,
    ) {
        handle::open(link, producer, ["link", "producer"], |link| {
            let options = channel::options(options)?;
            let opened = Producer::open_until(link, &options, options::deadline(timeout_ns));
            Ok(ProducerEnd::new(opened?))
        })
    }

    /// Offers a channel to the first process that connects to a listener.
    fn tw_producer_accept(
        listener: *mut *mut TwListener,
        options: *const TwChannelOptions,
        timeout_ns: i64,
        producer: *mut *mut TwProducer,
    ) {
        handle::open(listener, producer, ["listener", "producer"], |listener| {
            let options = channel::options(options)?;
            let opened = Producer::accept(listener, &options, options::deadline(timeout_ns));
            Ok(ProducerEnd::new(opened?))
        })
    }

    /// Returns room in which C writes a message in place.
    fn tw_producer_loan(
        producer: *mut TwProducer,
        length: usize,
        timeout_ns: i64,
        room: *mut *mut c_void,
    ) {
        let room = handle::result(room, "room", null_mut())?;
        let loan = |end: &mut ProducerEnd| end.loan(length, timeout_ns);
        *room = handle::with(producer, "producer", loan)?.cast();
        Ok(())
    }

    /// Commits the message that C has written to the lent room.
    fn tw_producer_commit(producer: *mut TwProducer, length: usize) {
        let commit = |end: &mut ProducerEnd| end.commit(length);
        handle::with(producer, "producer", commit)
    }

    /// Discards the lent room.
    fn tw_producer_abort(producer: *mut TwProducer) {
        let abort = |end: &mut ProducerEnd| {
            let loaned = end.loaned.take();
            loaned.map(drop).ok_or(CallFailure::usage("no slot is loaned: nothing to abort"))
        };
        handle::with(producer, "producer", abort)
    }

    /// Sends a copy of a message.
    fn tw_producer_send(
        producer: *mut TwProducer,
        message: *const c_void,
        length: usize,
        timeout_ns: i64,
    ) {
        let message = handle::bytes(message, length, "message")?;
        let send = |end: &mut ProducerEnd| end.send(message, timeout_ns);
        handle::with(producer, "producer", send)
    }

    /// Waits until the consumer has released every message.
    fn tw_producer_drain(producer: *mut TwProducer, timeout_ns: i64) {
        let drain = |end: &mut ProducerEnd| {
            Ok(end.producer.drained_until(options::deadline(timeout_ns))?)
        };
        handle::with(producer, "producer", drain)
    }

    /// Prepares the descriptor for polling in an event loop.
    fn tw_producer_arm(producer: *mut TwProducer, length: usize, is_armed: *mut c_int) {
        let is_armed = handle::result(is_armed, "answer", 0)?;
        let arm = |end: &mut ProducerEnd| Ok(end.producer.arm(length)?);
        *is_armed = handle::with(producer, "producer", arm)?.into();
        Ok(())
    }

    /// Returns the descriptor to poll; -1 for null.
    fn tw_producer_fd(producer: *const TwProducer) -> c_int {
        link::descriptor(producer)
    }

    /// Returns the size of the largest message; 0 for null.
    fn tw_producer_largest(producer: *const TwProducer) -> usize {
        handle::with(producer, "", |end| Ok(end.producer.largest())).unwrap_or(0)
    }

    /// Returns the number of messages committed; 0 for null.
    fn tw_producer_sent(producer: *const TwProducer) -> u64 {
        handle::with(producer, "", |end| Ok(end.producer.sent())).unwrap_or(0)
    }

    /// Closes a producer.
    fn tw_producer_close(producer: *mut TwProducer) -> () {
        handle::close(producer);
    }
}
