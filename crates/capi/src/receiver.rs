//! `tw_receiver`: the end of a bulk transfer that receives.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use thalweg_channel::{Error, bulk::Receiver};

use crate::buffer::{Memory, TwBuffer};
use crate::bulk::{self, TwBulkOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle, Here};
use crate::link::TwLink;
use crate::{guard, mechanism, text};

/// A receiver, and how much it has received.
pub struct Inflow {
    receiver: Receiver,
    buffers: u64,
}

/// `tw_receiver`, opaque to C.
pub type TwReceiver = Handle<Here<Inflow>>;

impl Inflow {
    fn next_length(&mut self) -> Result<u64, Failure> {
        let goodbye = Error::Closed { delivered: self.buffers };
        self.receiver.next_len()?.ok_or_else(|| goodbye.into())
    }
}

/// Meets the sender.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_open(
    link: *mut *mut TwLink,
    options: *const TwBulkOptions,
    receiver: *mut *mut TwReceiver,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "receiver"];
        // SAFETY: the caller's promise.
        let exchanged = unsafe { handle::exchange(link, receiver, names, null_mut()) };
        let (link, receiver) = exchanged?;
        // SAFETY: the caller's promise.
        let options = unsafe { bulk::options(options) }?;
        let opened = Inflow { receiver: Receiver::over(link, &options)?, buffers: 0 };
        *receiver = handle::hand_out(Here::new(opened));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Waits for the next buffer and says how long it is.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_next_length(
    receiver: *mut TwReceiver,
    length: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let next = |inflow: &mut Here<Inflow>| inflow.get()?.next_length();
        // SAFETY: the caller's promise.
        *length = unsafe { handle::with(receiver, "receiver", next) }?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Receives the next buffer into memory of the caller's.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_receive_into(
    receiver: *mut TwReceiver,
    into: *mut c_void,
    room: usize,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let length = unsafe { handle::result(length, "length", 0) }?;
        // SAFETY: the caller's promise.
        let into = unsafe { handle::room(into, room, "room for a buffer") }?;
        let receive = |inflow: &mut Here<Inflow>| {
            let inflow = inflow.get()?;
            // For the goodbye: the receiver itself says it with no count.
            inflow.next_length()?;
            *length = inflow.receiver.recv_into(into).map_err(too_large)?;
            inflow.buffers += 1;
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { handle::with(receiver, "receiver", receive) }
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

fn too_large(error: Error) -> Failure {
    let is_large = matches!(error, Error::TooLarge { .. });
    let failure = Failure::from(error);
    let hint = "; it waits: give more room, or call tw_receiver_receive_new";
    if is_large { failure.hint(hint) } else { failure }
}

/// Receives the next buffer into memory of its own.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_receive_new(
    receiver: *mut TwReceiver,
    buffer: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: the caller's promise.
        let buffer = unsafe { handle::place(buffer, "buffer") }?;
        let receive = |inflow: &mut Here<Inflow>| {
            let inflow = inflow.get()?;
            inflow.next_length()?;
            let got = inflow.receiver.recv_new()?;
            inflow.buffers += 1;
            Ok(got)
        };
        // SAFETY: the caller's promise.
        let got = unsafe { handle::with(receiver, "receiver", receive) }?;
        *buffer = handle::hand_out(Memory::Own(got));
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
pub unsafe extern "C" fn tw_receiver_arm(receiver: *const TwReceiver) -> *const c_char {
    let name =
        |inflow: &mut Here<Inflow>| Ok(mechanism::forever(inflow.get()?.receiver.mechanism().name));
    // SAFETY: the caller's promise.
    unsafe { handle::with(receiver, "", name) }.map_or(null(), CStr::as_ptr)
}

/// The mechanism in use and those that are not.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_explain_json(
    receiver: *const TwReceiver,
    json: *mut *mut c_char,
    error: *mut TwError,
) -> Status {
    let explain = |inflow: &mut Here<Inflow>| {
        let receiver = &inflow.get()?.receiver;
        Ok(bulk::explain(receiver.mechanism(), receiver.tuning(), None, receiver.skipped()))
    };
    let body = || {
        // SAFETY: the caller's promise.
        let json = unsafe { handle::place(json, "result") }?;
        // SAFETY: the caller's promise.
        *json = text::handed_out(&unsafe { handle::with(receiver, "receiver", explain) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

/// Closes a receiver.
///
/// # Safety
/// What the header says of its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_close(receiver: *mut TwReceiver) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(receiver) };
}
