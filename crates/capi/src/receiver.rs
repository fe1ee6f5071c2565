//! `tw_receiver`: the receiving end of a bulk transfer.

use std::ffi::{c_char, c_void};
use thalweg_channel::{Error, bulk::Receiver};

use crate::buffer::{BufferMemory, TwBuffer};
use crate::bulk::{self, TwBulkOptions};
use crate::error::CallFailure;
use crate::handle::{self, Handle, OwnedHere};
use crate::link::TwLink;
use crate::{guard::exported, text};

/// A receiver, and the number of buffers received.
pub struct ReceiverEnd {
    receiver: Receiver,
    buffers: u64,
}

/// `tw_receiver`, opaque to C.
pub type TwReceiver = Handle<OwnedHere<ReceiverEnd>>;

impl ReceiverEnd {
    fn next_length(&mut self) -> Result<u64, CallFailure> {
        let goodbye = Error::Closed { delivered: self.buffers };
        self.receiver.next_len()?.ok_or_else(|| goodbye.into())
    }
}

exported! {
    /// Connects to the sender.
    fn tw_receiver_open(
        link: *mut *mut TwLink,
        options: *const TwBulkOptions,
        receiver: *mut *mut TwReceiver,
    ) {
        handle::open(link, receiver, ["link", "receiver"], |link| {
            let options = bulk::options(options)?;
            let opened = ReceiverEnd { receiver: Receiver::over(link, &options)?, buffers: 0 };
            Ok(OwnedHere::new(opened))
        })
    }

    /// Waits for the next buffer and returns its length.
    fn tw_receiver_next_length(receiver: *mut TwReceiver, length: *mut u64) {
        let length = handle::result(length, "length", 0)?;
        let next = |end: &mut OwnedHere<ReceiverEnd>| end.get()?.next_length();
        *length = handle::with(receiver, "receiver", next)?;
        Ok(())
    }

    /// Receives the next buffer into the caller's memory.
    fn tw_receiver_receive_into(
        receiver: *mut TwReceiver,
        into: *mut c_void,
        room: usize,
        length: *mut usize,
    ) {
        let length = handle::result(length, "length", 0)?;
        let into = handle::room(into, room, "into")?;
        let receive = |end: &mut OwnedHere<ReceiverEnd>| {
            let end = end.get()?;
            // First check for the end of the transfer, because the error of `recv_into` would not contain the number of
            // buffers.
            end.next_length()?;
            *length = end.receiver.recv_into(into).map_err(too_large)?;
            end.buffers += 1;
            Ok(())
        };
        handle::with(receiver, "receiver", receive)
    }
}

fn too_large(error: Error) -> CallFailure {
    let is_large = matches!(error, Error::TooLarge { .. });
    let failure = CallFailure::from(error);
    let hint = "; the buffer stays available: provide more room, or call tw_receiver_receive_new";
    if is_large { failure.hint(hint) } else { failure }
}

exported! {
    /// Receives the next buffer into newly allocated memory.
    fn tw_receiver_receive_new(receiver: *mut TwReceiver, buffer: *mut *mut TwBuffer) {
        handle::create(buffer, "buffer", || {
            let receive = |end: &mut OwnedHere<ReceiverEnd>| {
                let end = end.get()?;
                end.next_length()?;
                let got = end.receiver.recv_new()?;
                end.buffers += 1;
                Ok(got)
            };
            let got = handle::with(receiver, "receiver", receive)?;
            Ok(BufferMemory::Own(got))
        })
    }

    /// Returns the name of the mechanism in use; null for null.
    fn tw_receiver_arm(receiver: *const TwReceiver) -> *const c_char {
        let name = |end: &mut OwnedHere<ReceiverEnd>| Ok(end.get()?.receiver.mechanism().name);
        text::text_or_null(handle::with(receiver, "", name).ok())
    }

    /// Describes the mechanism in use and the rejected ones, as JSON.
    fn tw_receiver_explain_json(receiver: *const TwReceiver, json: *mut *mut c_char) {
        let explain = |end: &mut OwnedHere<ReceiverEnd>| {
            let receiver = &end.get()?.receiver;
            Ok(bulk::explain(receiver.mechanism(), receiver.tuning(), None, receiver.skipped()))
        };
        let json = handle::place(json, "result")?;
        *json = text::handed_out(&handle::with(receiver, "receiver", explain)?);
        Ok(())
    }

    /// Closes a receiver.
    fn tw_receiver_close(receiver: *mut TwReceiver) -> () {
        handle::close(receiver);
    }
}
