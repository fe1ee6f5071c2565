//! `tw_mpsc`: one consumer for any number of producers.

use std::ffi::c_void;
use std::ptr::null;
use thalweg_channel::{Arrival, Mpsc, Sample};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::CallFailure;
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::{guard::exported, options};

/// A consumer, and the message that is lent to C.
type MpscEnd = Lender<Mpsc, Sample<'static>>;

/// `tw_mpsc`, opaque to C.
pub type TwMpsc = Handle<MpscEnd>;

/// Value of `TW_NOBODY`.
pub(crate) const NOBODY: u64 = u64::MAX;

exported! {
    /// Creates a consumer without producers.
    fn tw_mpsc_new(given: *const TwChannelOptions, mpsc: *mut *mut TwMpsc) {
        handle::create(mpsc, "consumer", || {
            let given = channel::options(given)?;
            Ok(Lender::new(Mpsc::new(&given)))
        })
    }

    /// Adds a producer.
    fn tw_mpsc_add(mpsc: *mut TwMpsc, link: *mut *mut TwLink, timeout_ns: i64, producer: *mut u64) {
        let names = ["link", "producer"];
        let exchanged = handle::exchange(link, producer, names, NOBODY);
        let (link, producer) = exchanged?;
        let add = |end: &mut MpscEnd| {
            // SAFETY of `idle`: the borrow of the reader ends with this closure.
            Ok(end.idle()?.add(link, options::deadline(timeout_ns))?)
        };
        *producer = handle::with(mpsc, "consumer", add)?;
        Ok(())
    }

    /// Returns the next message of any producer, or reports that a producer has left.
    fn tw_mpsc_receive(
        mpsc: *mut TwMpsc,
        timeout_ns: i64,
        from: *mut u64,
        message: *mut *const c_void,
        length: *mut usize,
    ) {
        let from = handle::result(from, "producer", NOBODY);
        let message = handle::result(message, "message", null());
        let length = handle::result(length, "length", 0);
        let (from, message, length) = (from?, message?, length?);
        let receive = |end: &mut MpscEnd| {
            // The lender keeps the message, as `idle` requires.
            let reader = end.idle()?;
            match reader.receive_until(options::deadline(timeout_ns))? {
                Arrival::Message { from: whose, sample } => {
                    (*from, *message, *length) = (whose, sample.as_ptr().cast(), sample.len());
                    end.lend(sample);
                    Ok(())
                }
                Arrival::Left { from: whose, error } => {
                    *from = whose;
                    Err(CallFailure::from(error))
                }
            }
        };
        handle::with(mpsc, "consumer", receive)
    }

    /// Releases the lent message, so that its producer can reuse the room.
    fn tw_mpsc_release(mpsc: *mut TwMpsc) {
        handle::with(mpsc, "consumer", Lender::take_back)
    }

    /// Closes a consumer. All producers then get `TW_CLOSED`.
    fn tw_mpsc_close(mpsc: *mut TwMpsc) -> () {
        handle::close(mpsc);
    }
}
