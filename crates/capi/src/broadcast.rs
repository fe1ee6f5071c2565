//! `tw_broadcast` and `tw_subscription`: one producer, any number of consumers.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null;
use thalweg_channel::broadcast::{Departure, Notice};
use thalweg_channel::{Broadcast, Slow, Subscription};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::CallFailure;
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::mpsc::NOBODY;
use crate::{guard::exported, options};

/// A broadcast, and the subscribers that have left but were not yet reported to C.
#[derive(Debug)]
pub struct BroadcastEnd {
    broadcast: Broadcast,
    departed: VecDeque<Departure>,
}

/// `tw_broadcast`, opaque to C.
pub type TwBroadcast = Handle<BroadcastEnd>;

/// `tw_subscription`, opaque to C.
pub type TwSubscription = Handle<Lender<Subscription, Notice<'static>>>;

exported! {
    /// Creates a broadcast without subscribers.
    fn tw_broadcast_new(backlog: usize, broadcast: *mut *mut TwBroadcast) {
        handle::create(broadcast, "broadcast", || {
            let slow = if backlog == 0 { Slow::Wait } else { Slow::DropOldest { backlog } };
            let end = BroadcastEnd { broadcast: Broadcast::new(slow), departed: VecDeque::new() };
            Ok(end)
        })
    }

    /// Adds a subscriber.
    fn tw_broadcast_add(
        broadcast: *mut TwBroadcast,
        link: *mut *mut TwLink,
        given: *const TwChannelOptions,
        timeout_ns: i64,
        subscriber: *mut u64,
    ) {
        let names = ["link", "subscriber"];
        let exchanged = handle::exchange(link, subscriber, names, NOBODY);
        let (link, subscriber) = exchanged?;
        let given = channel::options(given)?;
        let add = |end: &mut BroadcastEnd| {
            Ok(end.broadcast.add(link, &given, options::deadline(timeout_ns))?)
        };
        *subscriber = handle::with(broadcast, "broadcast", add)?;
        Ok(())
    }

    /// Sends a message to every subscriber.
    fn tw_broadcast_publish(
        broadcast: *mut TwBroadcast,
        message: *const c_void,
        length: usize,
        timeout_ns: i64,
    ) {
        let message = handle::bytes(message, length, "message")?;
        let publish = |end: &mut BroadcastEnd| {
            Ok(end.broadcast.publish_until(message, options::deadline(timeout_ns))?)
        };
        handle::with(broadcast, "broadcast", publish)
    }

    /// Moves queued messages to the subscribers' rings, while there is room.
    fn tw_broadcast_push(broadcast: *mut TwBroadcast, left: *mut usize) {
        let left = handle::result(left, "count", 0)?;
        let push = |end: &mut BroadcastEnd| Ok(end.broadcast.push_backlog()?);
        *left = handle::with(broadcast, "broadcast", push)?;
        Ok(())
    }

    /// Reports one departed subscriber per call. The status is the reason for its departure.
    fn tw_broadcast_departed(broadcast: *mut TwBroadcast, subscriber: *mut u64, dropped: *mut u64) {
        let subscriber = handle::result(subscriber, "subscriber", NOBODY);
        let dropped = handle::result(dropped, "count", 0);
        let (subscriber, dropped) = (subscriber?, dropped?);
        let next = |end: &mut BroadcastEnd| {
            end.departed.extend(end.broadcast.take_departed());
            Ok(end.departed.pop_front())
        };
        let Some(gone) = handle::with(broadcast, "broadcast", next)? else {
            return Ok(());
        };
        (*subscriber, *dropped) = (gone.subscriber, gone.dropped);
        Err(CallFailure::from(gone.error))
    }

    /// Returns the number of subscribers; 0 for null. A subscriber that has left counts until a call
    /// detects this.
    fn tw_broadcast_subscribers(broadcast: *const TwBroadcast) -> usize {
        handle::with(broadcast, "", |end| Ok(end.broadcast.subscribers())).unwrap_or(0)
    }

    /// Closes a broadcast. All subscribers then get `TW_CLOSED`.
    fn tw_broadcast_close(broadcast: *mut TwBroadcast) -> () {
        handle::close(broadcast);
    }

    /// Subscribes to the broadcast at the other end of a link.
    fn tw_subscription_open(
        link: *mut *mut TwLink,
        given: *const TwChannelOptions,
        subscription: *mut *mut TwSubscription,
    ) {
        handle::open(link, subscription, ["link", "subscription"], |link| {
            let given = channel::options(given)?;
            Ok(Lender::new(Subscription::open(link, &given)?))
        })
    }

    /// Returns the next message, its number, and the number of messages dropped directly before it.
    fn tw_subscription_receive(
        subscription: *mut TwSubscription,
        timeout_ns: i64,
        message: *mut *const c_void,
        length: *mut usize,
        number: *mut u64,
        missed: *mut u64,
    ) {
        let message = handle::result(message, "message", null());
        let length = handle::result(length, "length", 0);
        let number = handle::optional_result(number, 0);
        let missed = handle::optional_result(missed, 0);
        let (message, length) = (message?, length?);
        let receive = |lender: &mut Lender<Subscription, Notice<'static>>| {
            // The lender keeps the message, as `idle` requires.
            let reader = lender.idle()?;
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
        handle::with(subscription, "subscription", receive)
    }

    /// Releases the lent message, so that its room can be reused.
    fn tw_subscription_release(subscription: *mut TwSubscription) {
        handle::with(subscription, "subscription", Lender::take_back)
    }

    /// Closes a subscription.
    fn tw_subscription_close(subscription: *mut TwSubscription) -> () {
        handle::close(subscription);
    }
}
