//! `tw_channel_options`, and code for both ends of a message channel.

use std::ptr::NonNull;
use thalweg_channel::Options;

use crate::error::CallFailure;
use crate::options;

/// `tw_channel_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TwChannelOptions {
    size: usize,
    capacity: u64,
    spin_ns: u64,
    wait: u32,
    flags: u32,
}

/// Values of `TW_CHECKSUMS` and `TW_UNTRUSTED`.
const CHECKSUMS: u32 = 1;
const UNTRUSTED: u32 = 2;

/// # Safety
/// `given` must be null or point to as many bytes as its first field states.
pub(crate) unsafe fn options(given: *const TwChannelOptions) -> Result<Options, CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let Some(given) = (unsafe { options::read(given, "TW_CHANNEL_OPTIONS_INIT", &[]) })? else {
        return Ok(Options::default());
    };
    options::known_bits("flags", given.flags, CHECKSUMS | UNTRUSTED)?;
    let capacity = Some(given.capacity).filter(|capacity| *capacity > 0);
    Ok(Options {
        capacity: capacity.unwrap_or(Options::default().capacity),
        wait: options::wait(given.wait, given.spin_ns)?,
        trusted: given.flags & UNTRUSTED == 0,
        checksums: given.flags & CHECKSUMS != 0,
    })
}

/// A reader, and the message that is lent to C until C releases it. The message borrows from the reader. As C has no
/// borrows, this type ensures that the reader is not used while a message is lent.
#[derive(Debug)]
pub struct Lender<R, M> {
    /// The lent message. Must be dropped before the reader.
    lent: Option<M>,
    /// The reader, allocated by `Box`. Not accessed while a message is lent.
    reader: NonNull<R>,
}

impl<R: 'static, M> Lender<R, M> {
    pub(crate) fn new(reader: R) -> Self {
        Self { lent: None, reader: NonNull::from(Box::leak(Box::new(reader))) }
    }

    /// Returns the reader. Fails while a message is lent.
    ///
    /// # Safety
    /// The caller must drop the result, and everything that borrows from it, before it calls any other method. Only a
    /// message that it passes to [`lend`](Self::lend) may continue to borrow.
    pub(crate) unsafe fn idle(&mut self) -> Result<&'static mut R, CallFailure> {
        if self.lent.is_some() {
            return Err(CallFailure::usage(
                "the last received message is still in use: release it first",
            ));
        }
        // SAFETY: The reader lives until `self` is dropped. The caller guarantees that the borrow ends.
        Ok(unsafe { self.reader.as_mut() })
    }

    /// Keeps a message that borrows from the reader, until C releases it.
    pub(crate) fn lend(&mut self, message: M) {
        self.lent = Some(message);
    }

    /// Releases the lent message.
    pub(crate) fn take_back(&mut self) -> Result<(), CallFailure> {
        let lent = self.lent.take();
        lent.map(drop)
            .ok_or(CallFailure::usage("no received message is in use: nothing to release"))
    }
}

impl<R, M> Drop for Lender<R, M> {
    fn drop(&mut self) {
        self.lent = None;
        // SAFETY: `new` allocated the reader by `Box`. Only the message borrowed from it, and that is dropped.
        drop(unsafe { Box::from_raw(self.reader.as_ptr()) });
    }
}

#[cfg(test)]
pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_channel_options", size_of::<TwChannelOptions>()),
        ("tw_channel_options.capacity", std::mem::offset_of!(TwChannelOptions, capacity)),
        ("tw_channel_options.wait", std::mem::offset_of!(TwChannelOptions, wait)),
        ("tw_channel_options.flags", std::mem::offset_of!(TwChannelOptions, flags)),
    ]
}

// C may use a handle on any thread.
const _: () = {
    const fn may_be_sent<T: Send>() {}
    may_be_sent::<thalweg_channel::Listener>();
    may_be_sent::<thalweg_channel::Link>();
    may_be_sent::<thalweg_channel::Producer>();
    may_be_sent::<thalweg_channel::Consumer>();
    may_be_sent::<thalweg_channel::Held>();
    may_be_sent::<thalweg_channel::Sample<'static>>();
    may_be_sent::<thalweg_channel::Broadcast>();
    may_be_sent::<thalweg_channel::broadcast::Departure>();
    may_be_sent::<thalweg_channel::Subscription>();
    may_be_sent::<thalweg_channel::broadcast::Notice<'static>>();
    may_be_sent::<thalweg_channel::Mpsc>();
    may_be_sent::<thalweg_channel::bulk::Sender>();
    may_be_sent::<thalweg_channel::bulk::Receiver>();
    may_be_sent::<thalweg_channel::bulk::Buffer>();
    may_be_sent::<thalweg_channel::bulk::Loan>();
    may_be_sent::<thalweg_sys::region::Region>();
};
