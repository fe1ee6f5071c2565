//! `tw_sender`: the end of a bulk transfer that sends.

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

/// Meets the receiver.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_open(
    link: *mut *mut TwLink,
    options: *const TwBulkOptions,
    sender: *mut *mut TwSender,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "sender"];
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(link, sender, names, null_mut()) };
        let (link, sender) = exchanged?;
        // SAFETY: the caller's promise.
        let options = unsafe { bulk::options(options) }?;
        *sender = handle::hand_out(Here::new(Sender::over(link, options)?));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Sends a buffer and waits until it has arrived.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_send(
    sender: *mut TwSender,
    from: *const c_void,
    length: usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { handle::bytes(from, length, "buffer") }?;
        let send = |sender: &mut Here<Sender>| {
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_from(bytes))?)
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(sender, "sender", send) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Memory that the mechanism in use may hand over.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_loan(
    sender: *mut TwSender,
    length: usize,
    loan: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let loan = unsafe { handle::place(loan, "loan") }?;
        let alloc = |sender: &mut Here<Sender>| Ok(sender.get()?.alloc(length)?);
        // SAFETY: the caller's promise.
        let made = unsafe { handle::with(sender, "sender", alloc) }?;
        *loan = handle::hand_out(Memory::Lent(made));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Sends a loan, and gives it back if it still is the sender's.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_send_loan(
    sender: *mut TwSender,
    loan: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        let send = |sender: &mut Here<Sender>| {
            // Before anything else can fail: after a failure there is no loan.
            // SAFETY: the caller's promise.
            let taken = match unsafe { handle::take(loan, "loan") }? {
                Memory::Lent(taken) => taken,
                own @ Memory::Own(_) => {
                    // SAFETY: `take` has found it good.
                    unsafe { loan.write(handle::hand_out(own)) };
                    let message =
                        "loan: this buffer is not from tw_sender_loan; use tw_sender_send";
                    return Err(Failure::usage(message));
                }
            };
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_loan(taken))?)
        };
        // SAFETY: the caller's promise.
        let back = unsafe { handle::with(sender, "sender", send) }?;
        if let Some(back) = back {
            // SAFETY: `take` has found it good.
            unsafe { loan.write(handle::hand_out(Memory::Lent(back))) };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// The mechanism in use; null for null.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_arm(sender: *const TwSender) -> *const c_char {
    let name = |sender: &mut Here<Sender>| Ok(mechanism::forever(sender.get()?.mechanism().name));
    // SAFETY: the caller's promise.
    unsafe { handle::with(sender, "", name) }.map_or(null(), CStr::as_ptr)
}

/// The mechanism in use and those that are not.
///
/// # Safety
/// What the header says of its pointers.
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
        // SAFETY: the caller's promise.
        let json = unsafe { handle::place(json, "result") }?;
        // SAFETY: the caller's promise.
        *json = text::handed_out(&unsafe { handle::with(sender, "sender", explain) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Closes a sender: the goodbye.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_sender_close(sender: *mut TwSender) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(sender) };
}
