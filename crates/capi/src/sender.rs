//! `tw_sender`: the sending end of a bulk transfer.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use thalweg_channel::bulk::Sender;

use crate::buffer::{Memory, TwBuffer};
use crate::bulk::{self, TwBulkOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle, Here};
use crate::link::TwLink;
use crate::{guard, mechanism, sigpipe, text};

/// `tw_sender`, opaque to C.
pub type TwSender = Handle<Here<Sender>>;

/// Connects to the receiver.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_open(
    link: *mut *mut TwLink,
    options: *const TwBulkOptions,
    sender: *mut *mut TwSender,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "sender"];
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, sender, names, null_mut()) };
        let (link, sender) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let options = unsafe { bulk::options(options) }?;
        *sender = handle::hand_out(Here::new(Sender::over(link, options)?));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Sends a buffer and waits until it has arrived.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_send(
    sender: *mut TwSender,
    from: *const c_void,
    length: usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let bytes = unsafe { handle::bytes(from, length, "buffer") }?;
        let send = |sender: &mut Here<Sender>| {
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_from(bytes))?)
        };
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(sender, "sender", send) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Allocates memory that the mechanism in use may pass on without a copy.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_loan(
    sender: *mut TwSender,
    length: usize,
    loan: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let loan = unsafe { handle::place(loan, "loan") }?;
        let alloc = |sender: &mut Here<Sender>| Ok(sender.get()?.alloc(length)?);
        // SAFETY: Guaranteed by the caller.
        let made = unsafe { handle::with(sender, "sender", alloc) }?;
        *loan = handle::hand_out(Memory::Lent(made));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Sends a loan, and returns it unless the receiver keeps it.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_send_loan(
    sender: *mut TwSender,
    loan: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        let send = |sender: &mut Here<Sender>| {
            // Taken before anything else can fail: after a failure the caller has no loan any more.
            // SAFETY: Guaranteed by the caller.
            let taken = match unsafe { handle::take(loan, "loan") }? {
                Memory::Lent(taken) => taken,
                own @ Memory::Own(_) => {
                    // SAFETY: `take` has checked the pointer.
                    unsafe { loan.write(handle::hand_out(own)) };
                    let message =
                        "loan: this buffer is not from tw_sender_loan; use tw_sender_send";
                    return Err(Failure::usage(message));
                }
            };
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_loan(taken))?)
        };
        // SAFETY: Guaranteed by the caller.
        let back = unsafe { handle::with(sender, "sender", send) }?;
        if let Some(back) = back {
            // SAFETY: `take` has checked the pointer.
            unsafe { loan.write(handle::hand_out(Memory::Lent(back))) };
        }
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Returns the name of the mechanism in use; null for null.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_arm(sender: *const TwSender) -> *const c_char {
    let name = |sender: &mut Here<Sender>| Ok(mechanism::forever(sender.get()?.mechanism().name));
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(sender, "", name) }.map_or(null(), CStr::as_ptr)
}

/// Describes the mechanism in use and the rejected ones, as JSON.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_explain_json(
    sender: *const TwSender,
    json: *mut *mut c_char,
    error: *mut TwError,
) -> Status {
    let explain = |sender: &mut Here<Sender>| {
        let sender = sender.get()?;
        Ok(bulk::explain(
            sender.mechanism(),
            sender.tuning(),
            Some(&sender.choice()),
            sender.skipped(),
        ))
    };
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let json = unsafe { handle::place(json, "result") }?;
        // SAFETY: Guaranteed by the caller.
        *json = text::handed_out(&unsafe { handle::with(sender, "sender", explain) }?);
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Closes a sender: the receiver sees the end of the transfer.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_close(sender: *mut TwSender) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(sender) };
}
