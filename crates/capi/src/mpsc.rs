//! `tw_mpsc`: any number of producers, one consumer.

use std::ffi::c_void;
use std::ptr::null;
use thalweg_channel::{Arrival, Mpsc, Sample};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::{guard, options};

/// The consumer, with the message lent to C.
type Inlet = Lender<Mpsc, Sample<'static>>;

/// `tw_mpsc`, opaque to C.
pub type TwMpsc = Handle<Inlet>;

/// `TW_NOBODY`
const NOBODY: u64 = u64::MAX;

/// Creates a consumer without producers.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_new(
    given: *const TwChannelOptions,
    mpsc: *mut *mut TwMpsc,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let mpsc = unsafe { handle::place(mpsc, "consumer") }?;
        // SAFETY: Guaranteed by the caller.
        let given = unsafe { channel::options(given) }?;
        *mpsc = handle::hand_out(Lender::new(Mpsc::new(&given)));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Adds a producer.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_add(
    mpsc: *mut TwMpsc,
    link: *mut *mut TwLink,
    timeout_ns: i64,
    producer: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "producer"];
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, producer, names, NOBODY) };
        let (link, producer) = exchanged?;
        let add = |inlet: &mut Inlet| {
            // SAFETY: The reader is not kept.
            Ok(unsafe { inlet.idle() }?.add(link, options::deadline(timeout_ns))?)
        };
        // SAFETY: Guaranteed by the caller.
        *producer = unsafe { handle::with(mpsc, "consumer", add) }?;
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns the next message of any producer, or reports that one has left.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_receive(
    mpsc: *mut TwMpsc,
    timeout_ns: i64,
    from: *mut u64,
    message: *mut *const c_void,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let from = unsafe { handle::result(from, "producer", NOBODY) }?;
        // SAFETY: Guaranteed by the caller.
        let message = unsafe { handle::result(message, "message", null()) }?;
        // SAFETY: Guaranteed by the caller.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let receive = |inlet: &mut Inlet| {
            // SAFETY: The lender keeps the message.
            let reader = unsafe { inlet.idle() }?;
            match reader.receive_until(options::deadline(timeout_ns))? {
                Arrival::Message { from: whose, sample } => {
                    (*from, *message, *length) = (whose, sample.as_ptr().cast(), sample.len());
                    inlet.lend(sample);
                    Ok(())
                }
                Arrival::Left { from: whose, error } => {
                    *from = whose;
                    Err(Failure::from(error))
                }
            }
        };
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(mpsc, "consumer", receive) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Releases the lent message, so that its producer can reuse the room.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_release(mpsc: *mut TwMpsc, error: *mut TwError) -> Status {
    // SAFETY: Guaranteed by the caller.
    let body = || unsafe { handle::with(mpsc, "consumer", Lender::take_back) };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Closes a consumer: all producers see the end of the channel.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_close(mpsc: *mut TwMpsc) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(mpsc) };
}
