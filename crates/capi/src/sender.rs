//! `tw_sender`: the sending end of a bulk transfer.

use std::ffi::{c_char, c_void};
use thalweg_channel::bulk::Sender;

use crate::buffer::{BufferMemory, TwBuffer};
use crate::bulk::{self, TwBulkOptions};
use crate::error::CallFailure;
use crate::handle::{self, Handle, OwnedHere};
use crate::link::TwLink;
use crate::{guard::exported, sigpipe, text};

/// `tw_sender`, opaque to C.
pub type TwSender = Handle<OwnedHere<Sender>>;

exported! {
    /// Connects to the receiver.
    fn tw_sender_open(
        link: *mut *mut TwLink,
        options: *const TwBulkOptions,
        sender: *mut *mut TwSender,
    ) {
        handle::open(link, sender, ["link", "sender"], |link| {
            let options = bulk::options(options)?;
            Ok(OwnedHere::new(Sender::over(link, options)?))
        })
    }

    /// Sends a buffer, and waits until the receiver has all of it.
    fn tw_sender_send(sender: *mut TwSender, from: *const c_void, length: usize) {
        let bytes = handle::bytes(from, length, "buffer")?;
        let send = |sender: &mut OwnedHere<Sender>| {
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_from(bytes))?)
        };
        handle::with(sender, "sender", send)
    }

    /// Allocates memory that the mechanism in use may pass to the receiver without a copy.
    fn tw_sender_loan(sender: *mut TwSender, length: usize, loan: *mut *mut TwBuffer) {
        handle::create(loan, "loan", || {
            let alloc = |sender: &mut OwnedHere<Sender>| Ok(sender.get()?.alloc(length)?);
            let made = handle::with(sender, "sender", alloc)?;
            Ok(BufferMemory::Lent(made))
        })
    }

    /// Sends a loan, and returns it unless the receiver keeps it.
    fn tw_sender_send_loan(sender: *mut TwSender, loan: *mut *mut TwBuffer) {
        let send = |sender: &mut OwnedHere<Sender>| {
            // Take the loan before anything else can fail, because after a failure the caller has
            // no loan.
            let taken = match handle::take(loan, "loan")? {
                BufferMemory::Lent(taken) => taken,
                own @ BufferMemory::Own(_) => {
                    // `take` has checked that the pointer is valid.
                    loan.write(handle::hand_out(own));
                    let message = "loan: the buffer does not come from tw_sender_loan; send it with tw_sender_send";
                    return Err(CallFailure::usage(message));
                }
            };
            let sender = sender.get()?;
            Ok(sigpipe::without(|| sender.send_loan(taken))?)
        };
        let back = handle::with(sender, "sender", send)?;
        if let Some(back) = back {
            // `take` has checked that the pointer is valid.
            loan.write(handle::hand_out(BufferMemory::Lent(back)));
        }
        Ok(())
    }

    /// Returns the name of the mechanism in use; null for null.
    fn tw_sender_arm(sender: *const TwSender) -> *const c_char {
        let name = |sender: &mut OwnedHere<Sender>| Ok(sender.get()?.mechanism().name);
        text::text_or_null(handle::with(sender, "", name).ok())
    }

    /// Describes the mechanism in use and the rejected ones, as JSON.
    fn tw_sender_explain_json(sender: *const TwSender, json: *mut *mut c_char) {
        let explain = |sender: &mut OwnedHere<Sender>| {
            let sender = sender.get()?;
            Ok(bulk::explain(
                sender.mechanism(),
                sender.tuning(),
                Some(&sender.choice()),
                sender.skipped(),
            ))
        };
        let json = handle::place(json, "result")?;
        *json = text::handed_out(&handle::with(sender, "sender", explain)?);
        Ok(())
    }

    /// Closes a sender. The receiver then gets `TW_CLOSED`.
    fn tw_sender_close(sender: *mut TwSender) -> () {
        handle::close(sender);
    }
}
