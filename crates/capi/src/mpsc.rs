//! `tw_mpsc`: any number of producers, one consumer.

use std::ffi::c_void;
use std::ptr::null;
use thalweg_channel::{Arrival, Mpsc, Sample};

use crate::channel::{self, Lender, TwChannelOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle};
use crate::link::TwLink;
use crate::{guard, options};

/// The consumer, with the message that C holds.
type Inlet = Lender<Mpsc, Sample<'static>>;

/// `tw_mpsc`, opaque to C.
pub type TwMpsc = Handle<Inlet>;

/// `TW_NOBODY`
const NOBODY: u64 = u64::MAX;

/// A consumer without producers.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_new(
    given: *const TwChannelOptions,
    mpsc: *mut *mut TwMpsc,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let mpsc = unsafe { handle::place(mpsc, "consumer") }?;
        // SAFETY: the caller's promise.
        let given = unsafe { channel::options(given) }?;
        *mpsc = handle::hand_out(Lender::new(Mpsc::new(&given)));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Takes a producer in.
///
/// # Safety
/// What the header says of its pointers.
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
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(link, producer, names, NOBODY) };
        let (link, producer) = exchanged?;
        let add = |inlet: &mut Inlet| {
            // SAFETY: the reader is not kept.
            Ok(unsafe { inlet.idle() }?.add(link, options::deadline(timeout_ns))?)
        };
        // SAFETY: the caller's promise.
        *producer = unsafe { handle::with(mpsc, "consumer", add) }?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// The next message of whoever has one, or the news that one is gone.
///
/// # Safety
/// What the header says of its pointers.
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
        // SAFETY: the caller's promise.
        let from = unsafe { handle::result(from, "producer", NOBODY) }?;
        // SAFETY: the caller's promise.
        let message = unsafe { handle::result(message, "message", null()) }?;
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let receive = |inlet: &mut Inlet| {
            // SAFETY: the message goes to the lender.
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
        // SAFETY: the caller's promise.
        unsafe { handle::with(mpsc, "consumer", receive) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Gives the room of the message that is held back to its producer.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_release(mpsc: *mut TwMpsc, error: *mut TwError) -> Status {
    // SAFETY: the caller's promise.
    let body = || unsafe { handle::with(mpsc, "consumer", Lender::take_back) };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Closes a consumer: the goodbye to all.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_mpsc_close(mpsc: *mut TwMpsc) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(mpsc) };
}
