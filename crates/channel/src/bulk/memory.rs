//! The buffers of a bulk transfer: memory lent to the sender, memory allocated for the receiver, and
//! copies between private and shared memory.

use rustix::fd::OwnedFd;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_core::{Knob, Unfit, Unit};
use thalweg_kernels::{Kernel, Ready, by_name};
use thalweg_sys::{
    Errno,
    host::largest_cache,
    memfd,
    region::{Pages, Region, SealFlags, Sharing, seal},
};

use super::joint::NAME;
use crate::shared::stop::unfit;

/// Kind of store instructions for copies out of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// The C library's memcpy.
    Plain,
    /// Non-temporal stores. They neither read the destination first nor evict other data from the cache.
    Streaming,
}

/// Knob of the mechanisms in which the receiver copies out of shared memory.
pub(crate) const STREAM: Knob = Knob {
    name: "stream",
    summary: "stores that bypass the caches: 0 never, 1 always, 2 if the buffer is at least half as large as the largest cache",
    unit: Unit::Count,
    values: &[BY_CACHE, 1, 0],
};

const BY_CACHE: u64 = 2;

impl Stores {
    /// Returns the kind of stores for a value of [`STREAM`] and a buffer of `len` bytes. If source and destination fit
    /// into the cache, plain stores leave the bytes there for the receiver's program.
    pub fn of(knob: u64, len: usize) -> Self {
        static LARGEST: OnceLock<Option<u64>> = OnceLock::new();
        let largest = || *LARGEST.get_or_init(largest_cache);
        match knob {
            0 => Self::Plain,
            BY_CACHE if largest().is_some_and(|cache| (len as u64) < cache / 2) => Self::Plain,
            _ => Self::Streaming,
        }
    }
}

fn kernel(stores: Stores) -> Ready {
    static PLAIN: OnceLock<Ready> = OnceLock::new();
    static STREAMING: OnceLock<Ready> = OnceLock::new();
    let plain = || {
        let row = by_name("libc").and_then(Kernel::ready);
        *PLAIN.get_or_init(|| row.expect("the C library copies on every machine"))
    };
    match stores {
        Stores::Plain => plain(),
        Stores::Streaming => *STREAMING
            .get_or_init(|| by_name("stream").and_then(Kernel::ready).unwrap_or_else(plain)),
    }
}

/// Copies shared memory to `into`.
///
/// # Safety
/// `from` must be readable for `into.len()` bytes. If other processes write there during the copy, the copied bytes are
/// arbitrary, and the caller must handle that.
pub(crate) unsafe fn copy_out(into: &mut [u8], from: *const u8, stores: Stores) {
    // SAFETY: The caller guarantees that `from` is readable. `into` belongs to this process alone, so the two do not
    // overlap.
    unsafe { kernel(stores).copy_raw(into.as_mut_ptr(), from, into.len()) };
}

/// Copies `from` into shared memory.
///
/// # Safety
/// `to` must be writable for `from.len()` bytes and must not overlap `from`.
pub(crate) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    // SAFETY: Guaranteed by the caller.
    unsafe { kernel(Stores::Plain).copy_raw(to, from.as_ptr(), from.len()) };
}

/// A mapping of memory that is private to this process.
#[derive(Debug)]
pub(crate) struct MappedBytes {
    region: Option<Region>,
    len: usize,
}

impl MappedBytes {
    /// Allocates `len` zeroed bytes and makes them resident. They are on huge pages if the kernel provides them.
    /// Returns ENOMEM if the machine or the process has no more memory.
    pub fn fresh(len: usize, pages: Pages) -> Result<Self, Errno> {
        let memory = Self::untouched(len, pages)?;
        match memory.region.as_ref().map_or(Ok(()), Region::populate) {
            // EINVAL: this Linux kernel cannot populate mappings. It allocates each page when the page is first
            // written.
            Ok(()) | Err(Errno::INVAL) => Ok(memory),
            Err(errno) => Err(errno),
        }
    }

    /// Allocates `len` zeroed bytes without making any page resident. Intended for a length that only the peer claims.
    pub fn untouched(len: usize, pages: Pages) -> Result<Self, Errno> {
        let region = if len == 0 { None } else { Some(Region::anonymous(len, pages)?) };
        Ok(Self { region, len })
    }

    /// Wraps the first `len` bytes of a private mapping. The mapped file must be sealed against writing.
    pub fn over(region: Region, len: usize) -> Self {
        assert!(
            region.is_writable() && region.len() >= len,
            "the mapping is shorter than the buffer or read-only"
        );
        Self { region: Some(region), len }
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.region {
            None => &[],
            // SAFETY: `self.len` bytes are mapped and initialised by the kernel. They are private, and only `&mut self`
            // writes to them.
            Some(region) => unsafe { std::slice::from_raw_parts(region.as_ptr(), self.len) },
        }
    }
}

impl DerefMut for MappedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.region {
            None => &mut [],
            // SAFETY: As above; `&mut self` excludes every other reference.
            Some(region) => unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), self.len) },
        }
    }
}

/// A buffer received by [`Receiver::recv_new`](super::Receiver::recv_new): memory that is private to
/// this process.
#[derive(Debug)]
pub struct Buffer(pub(crate) MappedBytes);

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Allocates `len` zeroed bytes for repeated receives. They are on huge pages if the kernel provides them. They are
/// resident, because a page fault costs more than the copy of its page.
pub fn buffer(len: usize) -> Result<Buffer, Errno> {
    MappedBytes::fresh(len, Pages::Transparent).map(Buffer)
}

/// Number of times that lent memory can be passed to a receiver.
#[derive(Debug)]
pub(crate) enum Handing {
    /// Any number of times. The number identifies the memory among all those that this process lends.
    Shared(OwnedFd, u64),
    /// Only once, because it is sealed when it is passed.
    Sealable(OwnedFd),
    /// Never.
    None,
}

/// Memory that can be passed to another process. Only this process writes to it.
#[derive(Debug)]
pub(crate) struct LentRegion {
    /// `None` if the length is 0.
    pub region: Option<Region>,
    pub handing: Handing,
    len: usize,
}

impl LentRegion {
    /// Creates a memfd that only this process can write. Other processes can neither resize it nor map it writable.
    pub fn shared(len: usize) -> Result<Self, Unfit> {
        /// The last id. All senders share it, because a sender may send the loan of another one. A forked child may
        /// use an id that its parent uses too, but no sender has loans of both: the parent's senders return
        /// [`Error::Forked`](crate::Error::Forked) in the child, and every loan that the child inherits has a lower id
        /// than the child's own.
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        let fd =
            memfd::create(NAME, len as u64).map_err(|failed| unfit(failed.call, failed.errno))?;
        let region = Region::of_file(&fd, len, Sharing::Write).map_err(|e| unfit("mmap", e))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        seal(&fd, seals).map_err(|e| unfit("F_ADD_SEALS", e))?;
        // Relaxed, because no other data depends on the number.
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Self { region: Some(region), handing: Handing::Shared(fd, id), len })
    }

    /// Creates a memfd that can be sent only once, because sending it seals it permanently.
    pub fn sealable(len: usize) -> Result<Self, Unfit> {
        let fd =
            memfd::create(NAME, len as u64).map_err(|failed| unfit(failed.call, failed.errno))?;
        let region = Region::of_file(&fd, len, Sharing::Write).map_err(|e| unfit("mmap", e))?;
        Ok(Self { region: Some(region), handing: Handing::Sealable(fd), len })
    }

    /// Allocates ordinary memory, for mechanisms that pass no memory to the receiver.
    pub fn ordinary(len: usize) -> Result<Self, Unfit> {
        let region = match len {
            0 => None,
            _ => Some(Region::anonymous(len, Pages::Transparent).map_err(|e| unfit("mmap", e))?),
        };
        Ok(Self { region, handing: Handing::None, len })
    }

    /// Maps memory that was sealed for sending but was not sent. The mapping is private.
    pub fn of_sealed(fd: &OwnedFd, len: usize) -> Option<Self> {
        let region = Region::of_file(fd, len, Sharing::Private).ok()?;
        Some(Self { region: Some(region), handing: Handing::None, len })
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.region {
            None => &[],
            // SAFETY: `len` bytes are mapped, and no other process can write to them: none has the memory before it is
            // passed, and afterwards its seals forbid writing. This process writes only through `&mut self`.
            Some(region) => unsafe { std::slice::from_raw_parts(region.as_ptr(), self.len) },
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &self.region {
            None => &mut [],
            // SAFETY: As above; `&mut self` excludes every other reference.
            Some(region) => unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), self.len) },
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

/// Memory for data to be sent with [`Sender::send_loan`](super::Sender::send_loan). A mechanism that can pass this
/// memory to the receiver avoids the copy into shared memory.
#[derive(Debug)]
pub struct Loan(pub(crate) LentRegion);

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn buffers_are_zeroed_writable_and_may_be_empty() {
        for len in [0, 1, 4097, 3 << 20] {
            let mut made = buffer(len).unwrap();
            assert_eq!(made.len(), len);
            assert!(made.iter().all(|byte| *byte == 0));
            made.fill(7);
            assert!(made.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_buffer_that_the_cache_holds_twice_is_not_stored_past_it_unless_that_is_asked_for() {
        let [by_cache, always, never] = [2, 1, 0];
        assert_eq!(STREAM.values, [by_cache, always, never]);
        for len in [0, 1, usize::MAX] {
            assert_eq!(Stores::of(always, len), Stores::Streaming);
            assert_eq!(Stores::of(never, len), Stores::Plain);
        }
        assert_eq!(Stores::of(by_cache, usize::MAX), Stores::Streaming);
        if let Some(cache) = largest_cache() {
            let both = cache as usize / 2;
            assert_eq!(Stores::of(by_cache, both - 1), Stores::Plain);
            assert_eq!(Stores::of(by_cache, both), Stores::Streaming);
        }
    }

    #[test]
    fn no_other_process_writes_a_loan() {
        let Ok(mut lent) = LentRegion::shared(8192) else { return };
        lent.bytes_mut()[8191] = 9;
        let Handing::Shared(fd, _) = &lent.handing else { panic!("{lent:?}") };
        assert!(Region::of_file(fd, 8192, Sharing::Write).is_err());
        let region = Region::of_file(fd, 8192, Sharing::Read).unwrap();
        let mut seen = vec![0; 8192];
        // SAFETY: 8192 bytes are mapped, and no process writes to them now.
        unsafe { copy_out(&mut seen, region.as_ptr(), Stores::Streaming) };
        assert_eq!(seen, lent.bytes());
        assert_eq!(thalweg_sys::io::write(fd, b"x"), Err(Errno::PERM));
    }
}
