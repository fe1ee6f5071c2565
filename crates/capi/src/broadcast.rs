//! `tw_broadcast` and `tw_subscription`: one producer, any number of consumers.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use thalweg_channel::broadcast::{Departure, Notice};
use thalweg_channel::{Broadcast, Slow, Subscription};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::{guard, options};

/// A broadcast, and the subscribers that left but were not reported to C yet.
#[derive(Debug)]
pub struct Stage {
    broadcast: Broadcast,
    departed: VecDeque<Departure>,
}

/// `tw_broadcast`, opaque to C.
pub type TwBroadcast = Handle<Stage>;

/// `tw_subscription`, opaque to C.
pub type TwSubscription = Handle<Lender<Subscription, Notice<'static>>>;

/// Creates a broadcast without subscribers.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_new(
    backlog: usize,
    broadcast: *mut *mut TwBroadcast,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let broadcast = unsafe { handle::place(broadcast, "broadcast") }?;
        let slow = if backlog == 0 { Slow::Wait } else { Slow::DropOldest { backlog } };
        let stage = Stage { broadcast: Broadcast::new(slow), departed: VecDeque::new() };
        *broadcast = handle::hand_out(stage);
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Adds a subscriber.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_add(
    broadcast: *mut TwBroadcast,
    link: *mut *mut TwLink,
    given: *const TwChannelOptions,
    timeout_ns: i64,
    subscriber: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "subscriber"];
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, subscriber, names, u64::MAX) };
        let (link, subscriber) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let given = unsafe { channel::options(given) }?;
        let add = |stage: &mut Stage| {
            Ok(stage.broadcast.add(link, &given, options::deadline(timeout_ns))?)
        };
        // SAFETY: Guaranteed by the caller.
        *subscriber = unsafe { handle::with(broadcast, "broadcast", add) }?;
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Sends a message to every subscriber.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_publish(
    broadcast: *mut TwBroadcast,
    message: *const c_void,
    length: usize,
    timeout_ns: i64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let message = unsafe { handle::bytes(message, length, "message") }?;
        let publish = |stage: &mut Stage| {
            Ok(stage.broadcast.publish_until(message, options::deadline(timeout_ns))?)
        };
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(broadcast, "broadcast", publish) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Sends queued messages to slow subscribers, as far as there is room.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_push(
    broadcast: *mut TwBroadcast,
    left: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let left = unsafe { handle::result(left, "count", 0) }?;
        let push = |stage: &mut Stage| Ok(stage.broadcast.push_backlog()?);
        // SAFETY: Guaranteed by the caller.
        *left = unsafe { handle::with(broadcast, "broadcast", push) }?;
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Reports one departed subscriber per call; the status is the reason.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_departed(
    broadcast: *mut TwBroadcast,
    subscriber: *mut u64,
    dropped: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let subscriber = unsafe { handle::result(subscriber, "subscriber", u64::MAX) }?;
        // SAFETY: Guaranteed by the caller.
        let dropped = unsafe { handle::result(dropped, "count", 0) }?;
        let next = |stage: &mut Stage| {
            stage.departed.extend(stage.broadcast.take_departed());
            Ok(stage.departed.pop_front())
        };
        // SAFETY: Guaranteed by the caller.
        let Some(gone) = (unsafe { handle::with(broadcast, "broadcast", next) })? else {
            return Ok(());
        };
        (*subscriber, *dropped) = (gone.subscriber, gone.dropped);
        Err(Failure::from(gone.error))
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns the number of subscribers that are not known to have left; 0 for null.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_subscribers(broadcast: *const TwBroadcast) -> usize {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(broadcast, "", |stage| Ok(stage.broadcast.subscribers())) }.unwrap_or(0)
}

/// Closes a broadcast: all subscribers see the end of the channel.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_broadcast_close(broadcast: *mut TwBroadcast) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(broadcast) };
}

/// Subscribes to the broadcast at the other end of a link.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_subscription_open(
    link: *mut *mut TwLink,
    given: *const TwChannelOptions,
    subscription: *mut *mut TwSubscription,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "subscription"];
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, subscription, names, null_mut()) };
        let (link, subscription) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let given = unsafe { channel::options(given) }?;
        *subscription = handle::hand_out(Lender::new(Subscription::open(link, &given)?));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns the next message, its number, and the number of messages dropped before it.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_subscription_receive(
    subscription: *mut TwSubscription,
    timeout_ns: i64,
    message: *mut *const c_void,
    length: *mut usize,
    number: *mut u64,
    missed: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let message = unsafe { handle::result(message, "message", null()) }?;
        // SAFETY: Guaranteed by the caller.
        let length = unsafe { handle::result(length, "length", 0) }?;
        // SAFETY: Null or valid, as the caller guarantees.
        let number = unsafe { number.as_mut() };
        // SAFETY: As above.
        let missed = unsafe { missed.as_mut() };
        let receive = |lender: &mut Lender<Subscription, Notice<'static>>| {
            // SAFETY: The lender keeps the message.
            let reader = unsafe { lender.idle() }?;
            let notice = reader.receive_until(options::deadline(timeout_ns))?;
            (*message, *length) = (notice.as_ptr().cast(), notice.len());
            if let Some(number) = number {
                *number = notice.number();
            }
            if let Some(missed) = missed {
                *missed = notice.missed();
            }
            lender.lend(notice);
            Ok(())
        };
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(subscription, "subscription", receive) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Releases the room of the lent message.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_subscription_release(
    subscription: *mut TwSubscription,
    error: *mut TwError,
) -> Status {
    // SAFETY: Guaranteed by the caller.
    let body = || unsafe { handle::with(subscription, "subscription", Lender::take_back) };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Closes a subscription.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_subscription_close(subscription: *mut TwSubscription) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(subscription) };
}
