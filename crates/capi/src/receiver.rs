//! `tw_receiver`: the receiving end of a bulk transfer.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use thalweg_channel::{Error, bulk::Receiver};

use crate::buffer::{Memory, TwBuffer};
use crate::bulk::{self, TwBulkOptions};
use crate::error::{Failure, Status, TwError};
use crate::handle::{self, Handle, Here};
use crate::link::TwLink;
use crate::{guard, mechanism, text};

/// A receiver, and the number of buffers received.
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

/// Connects to the sender.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_open(
    link: *mut *mut TwLink,
    options: *const TwBulkOptions,
    receiver: *mut *mut TwReceiver,
    error: *mut TwError,
) -> Status {
    let body = || {
        let names = ["link", "receiver"];
        // SAFETY: Guaranteed by the caller.
        let exchanged = unsafe { handle::exchange(link, receiver, names, null_mut()) };
        let (link, receiver) = exchanged?;
        // SAFETY: Guaranteed by the caller.
        let options = unsafe { bulk::options(options) }?;
        let opened = Inflow { receiver: Receiver::over(link, &options)?, buffers: 0 };
        *receiver = handle::hand_out(Here::new(opened));
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Waits for the next buffer and returns its length.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_next_length(
    receiver: *mut TwReceiver,
    length: *mut u64,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let length = unsafe { handle::result(length, "length", 0) }?;
        let next = |inflow: &mut Here<Inflow>| inflow.get()?.next_length();
        // SAFETY: Guaranteed by the caller.
        *length = unsafe { handle::with(receiver, "receiver", next) }?;
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Receives the next buffer into the caller's memory.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_receive_into(
    receiver: *mut TwReceiver,
    into: *mut c_void,
    room: usize,
    length: *mut usize,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let length = unsafe { handle::result(length, "length", 0) }?;
        // SAFETY: Guaranteed by the caller.
        let into = unsafe { handle::room(into, room, "room for a buffer") }?;
        let receive = |inflow: &mut Here<Inflow>| {
            let inflow = inflow.get()?;
            // Checks for the end of the transfer first: the receiver's own error would not contain the
            // count.
            inflow.next_length()?;
            *length = inflow.receiver.recv_into(into).map_err(too_large)?;
            inflow.buffers += 1;
            Ok(())
        };
        // SAFETY: Guaranteed by the caller.
        unsafe { handle::with(receiver, "receiver", receive) }
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

fn too_large(error: Error) -> Failure {
    let is_large = matches!(error, Error::TooLarge { .. });
    let failure = Failure::from(error);
    let hint = "; it waits: give more room, or call tw_receiver_receive_new";
    if is_large { failure.hint(hint) } else { failure }
}

/// Receives the next buffer into newly allocated memory.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_receive_new(
    receiver: *mut TwReceiver,
    buffer: *mut *mut TwBuffer,
    error: *mut TwError,
) -> Status {
    let body = || {
        // SAFETY: Guaranteed by the caller.
        let buffer = unsafe { handle::place(buffer, "buffer") }?;
        let receive = |inflow: &mut Here<Inflow>| {
            let inflow = inflow.get()?;
            inflow.next_length()?;
            let got = inflow.receiver.recv_new()?;
            inflow.buffers += 1;
            Ok(got)
        };
        // SAFETY: Guaranteed by the caller.
        let got = unsafe { handle::with(receiver, "receiver", receive) }?;
        *buffer = handle::hand_out(Memory::Own(got));
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
pub unsafe extern "C" fn tw_receiver_arm(receiver: *const TwReceiver) -> *const c_char {
    let name =
        |inflow: &mut Here<Inflow>| Ok(mechanism::forever(inflow.get()?.receiver.mechanism().name));
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::with(receiver, "", name) }.map_or(null(), CStr::as_ptr)
}

/// Describes the mechanism in use and the rejected ones, as JSON.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
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
        // SAFETY: Guaranteed by the caller.
        let json = unsafe { handle::place(json, "result") }?;
        // SAFETY: Guaranteed by the caller.
        *json = text::handed_out(&unsafe { handle::with(receiver, "receiver", explain) }?);
        Ok(())
    };
    // SAFETY: Guaranteed by the caller.
    unsafe { guard::run(error, body) }
}

/// Closes a receiver.
///
/// # Safety
/// The pointers must satisfy the header's requirements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_close(receiver: *mut TwReceiver) {
    // SAFETY: Guaranteed by the caller.
    unsafe { handle::close(receiver) };
}
