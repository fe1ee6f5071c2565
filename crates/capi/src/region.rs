//! `tw_region`: memory that processes share.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;
use thalweg_sys::Errno;
use thalweg_sys::memfd;
use thalweg_sys::region::{self, Region, SealFlags, Segment, Sharing};

use crate::error::{CallFailure, TwStatus};
use crate::handle::{self, Handle};
use crate::{guard::exported, options, text};

/// Values of `TW_MEMFD`, `TW_POSIX` and `TW_SYSV`.
const MEMFD: u32 = 0;
const POSIX: u32 = 1;
const SYSV: u32 = 2;

/// Values of `TW_SEAL_SIZE`, `TW_SEAL_WRITE`, `TW_SEAL_WRITERS` and `TW_SEAL_SEALS`, and the seals of the Linux kernel.
const SEALS: [(u32, SealFlags); 4] = [
    (1, SealFlags::SHRINK.union(SealFlags::GROW)),
    (2, SealFlags::WRITE),
    (4, SealFlags::FUTURE_WRITE),
    (8, SealFlags::SEAL),
];

/// The kernel object behind the memory.
#[derive(Debug)]
enum Home {
    File(File),
    Segment(Segment),
}

/// The memory of a region. It has no mapping after `tw_region_unmap`.
#[derive(Debug)]
pub struct RegionMemory {
    home: Home,
    length: usize,
    map: Option<Region>,
}

/// `tw_region`, opaque to C.
pub type TwRegion = Handle<RegionMemory>;

impl RegionMemory {
    fn create(kind: u32, length: usize) -> Result<Self, CallFailure> {
        if length == 0 {
            return Err(CallFailure::usage("length is 0: a region has at least 1 byte"));
        }
        let home = match kind {
            MEMFD => memfd::create("thalweg", length as u64)
                .map(|fd| Home::File(fd.into()))
                .map_err(|failed| CallFailure::system(failed.call, failed.errno))?,
            POSIX => region::posix(length)
                .map(|fd| Home::File(fd.into()))
                .map_err(|failed| CallFailure::system(failed.call, failed.errno))?,
            SYSV => Segment::create(length).map(Home::Segment).map_err(|errno| {
                let limits = "; the limits are kernel.shmmax, shmall and shmmni";
                CallFailure::system("shmget", errno).hint(limits)
            })?,
            other => {
                return Err(CallFailure::usage(format!("kind is {other}, not a tw_region_kind")));
            }
        };
        let mut memory = Self { home, length, map: None };
        let mapped = memory.map(Sharing::Write);
        if let (Err(_), Home::Segment(segment)) = (&mapped, &memory.home) {
            // Remove the segment, which would otherwise leak, because no other process knows its id.
            let _ = segment.remove();
        }
        mapped.map(|()| memory)
    }

    /// Maps the file behind a descriptor; length 0 means all of it.
    fn of_file(file: File, length: usize, sharing: Sharing) -> Result<Self, CallFailure> {
        let known = file.metadata().map_err(|error| {
            CallFailure::system("fstat", Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        let length = within(length, usize::try_from(known.len()).unwrap_or(usize::MAX))?;
        let mut memory = Self { home: Home::File(file), length, map: None };
        memory.map(sharing).map(|()| memory)
    }

    /// Maps a System V segment by its id; length 0 means all of it.
    fn of_segment(id: c_int, length: usize, sharing: Sharing) -> Result<Self, CallFailure> {
        let segment = Segment::of_id(id);
        let known = segment.len().map_err(|errno| CallFailure::system("shmctl", errno))?;
        let length = within(length, known)?;
        let mut memory = Self { home: Home::Segment(segment), length, map: None };
        memory.map(sharing).map(|()| memory)
    }

    fn map(&mut self, sharing: Sharing) -> Result<(), CallFailure> {
        if self.map.is_some() {
            return Err(CallFailure::usage("the region is mapped: unmap it first"));
        }
        let mapped = match &self.home {
            Home::File(file) => Region::of_file(file, self.length, sharing)
                .map_err(|errno| CallFailure::system("mmap", errno)),
            Home::Segment(segment) if sharing == Sharing::Write => {
                Region::of_segment(*segment, self.length)
                    .map_err(|errno| CallFailure::system("shmat", errno))
            }
            Home::Segment(_) => {
                let message = "a System V segment can be mapped only with TW_WRITE";
                return Err(CallFailure::new(TwStatus::Unsupported, message));
            }
        };
        self.map = Some(mapped?);
        Ok(())
    }

    fn file(&self, what: &str) -> Result<&File, CallFailure> {
        match &self.home {
            Home::File(file) => Ok(file),
            Home::Segment(_) => {
                let message = format!("a System V segment cannot {what}");
                Err(CallFailure::new(TwStatus::Unsupported, message))
            }
        }
    }

    fn mapped(&self) -> Result<&Region, CallFailure> {
        self.map.as_ref().ok_or(CallFailure::usage("the region is not mapped"))
    }
}

/// Returns the length to map; 0 means all of it. Fails if it exceeds `most`, because accesses beyond the end raise
/// SIGBUS.
fn within(length: usize, most: usize) -> Result<usize, CallFailure> {
    match length {
        _ if most == 0 => Err(CallFailure::usage("nothing to map: the region has 0 bytes")),
        0 => Ok(most),
        _ if length > most => {
            let message = format!("{length} bytes exceed the region's size of {most}");
            Err(CallFailure::new(TwStatus::TooLarge, message))
        }
        _ => Ok(length),
    }
}

fn sharing(of: u32) -> Result<Sharing, CallFailure> {
    match of {
        0 => Ok(Sharing::Read),
        1 => Ok(Sharing::Write),
        2 => Ok(Sharing::Private),
        other => Err(CallFailure::usage(format!("sharing is {other}, not a tw_sharing"))),
    }
}

fn seals(bits: u32) -> Result<SealFlags, CallFailure> {
    options::known_bits("seals", bits, SEALS.iter().fold(0, |all, (bit, _)| all | bit))?;
    let asked = SEALS.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(asked.fold(SealFlags::empty(), |all, (_, flags)| all | *flags))
}

exported! {
    /// Creates and maps shared memory.
    fn tw_region_create(kind: u32, length: usize, region: *mut *mut TwRegion) {
        handle::create(region, "region", || RegionMemory::create(kind, length))
    }

    /// Maps the file behind a descriptor.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements; the descriptor must stay open during the call.
    fn tw_region_of_fd(fd: c_int, length: usize, share: u32, region: *mut *mut TwRegion) {
        handle::create(region, "region", || {
            let file = text::own_descriptor(fd, "fd")?;
            RegionMemory::of_file(file.into(), length, sharing(share)?)
        })
    }

    /// Maps a System V segment.
    fn tw_region_of_segment(id: c_int, length: usize, share: u32, region: *mut *mut TwRegion) {
        handle::create(region, "region", || RegionMemory::of_segment(id, length, sharing(share)?))
    }

    /// Maps a region again after it was unmapped.
    fn tw_region_map(region: *mut TwRegion, share: u32) {
        let map = |memory: &mut RegionMemory| memory.map(sharing(share)?);
        handle::with(region, "region", map)
    }

    /// Unmaps a region.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements. The mapped memory must not be in use any more.
    fn tw_region_unmap(region: *mut TwRegion) {
        let unmap = |memory: &mut RegionMemory| {
            memory.mapped()?;
            memory.map = None;
            Ok(())
        };
        handle::with(region, "region", unmap)
    }

    /// Seals a memory file.
    fn tw_region_seal(region: *mut TwRegion, bits: u32) {
        let seal = |memory: &mut RegionMemory| {
            let flags = seals(bits)?;
            region::seal(memory.file("be sealed")?, flags).map_err(|errno| {
                let hint = match errno {
                    Errno::BUSY => "; unmap every mapping that may write before TW_SEAL_WRITE",
                    Errno::INVAL => "; only a TW_MEMFD can be sealed",
                    _ => "",
                };
                CallFailure::system("fcntl(F_ADD_SEALS)", errno).hint(hint)
            })
        };
        handle::with(region, "region", seal)
    }

    /// Returns 1 if a region has all of these seals, otherwise 0.
    fn tw_region_is_sealed(region: *const TwRegion, bits: u32) -> c_int {
        let ask = |memory: &mut RegionMemory| {
            let file = memory.file("be sealed")?;
            Ok(region::is_sealed(file, seals(bits)?, memory.length as u64))
        };
        handle::with(region, "", ask).unwrap_or(false).into()
    }

    /// Makes every page resident.
    fn tw_region_populate(region: *mut TwRegion) {
        let populate = |memory: &mut RegionMemory| match memory.mapped()?.populate() {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                let failure = CallFailure::system("madvise(MADV_POPULATE_*)", Errno::INVAL);
                Err(CallFailure { status: TwStatus::Unsupported, ..failure }
                    .hint("; this call needs Linux 5.14"))
            }
            Err(errno) => Err(CallFailure::system("madvise(MADV_POPULATE_*)", errno)),
        };
        handle::with(region, "region", populate)
    }

    /// Marks a System V segment for removal. The kernel removes it when the last process detaches.
    fn tw_region_remove(region: *mut TwRegion) {
        let remove = |memory: &mut RegionMemory| match &memory.home {
            Home::Segment(segment) => {
                segment.remove().map_err(|errno| CallFailure::system("shmctl(IPC_RMID)", errno))
            }
            Home::File(_) => Err(CallFailure::usage("only a TW_SYSV can be removed")),
        };
        handle::with(region, "region", remove)
    }

    /// Returns the address of the mapping; null if the region is not mapped.
    fn tw_region_data(region: *const TwRegion) -> *mut c_void {
        let start = |memory: &mut RegionMemory| Ok(memory.mapped()?.as_ptr().cast());
        handle::with(region, "", start).unwrap_or(null_mut())
    }

    /// Returns the length of the region in bytes; 0 for null.
    fn tw_region_length(region: *const TwRegion) -> usize {
        handle::with(region, "", |memory| Ok(memory.length)).unwrap_or(0)
    }

    /// Returns the descriptor, or -1 for a System V segment.
    fn tw_region_fd(region: *const TwRegion) -> c_int {
        let fd = |memory: &mut RegionMemory| Ok(memory.file("have one")?.as_fd().as_raw_fd());
        handle::with(region, "", fd).unwrap_or(-1)
    }

    /// Returns the id of the System V segment, or -1 if the region is a file.
    fn tw_region_segment(region: *const TwRegion) -> c_int {
        let id = |memory: &mut RegionMemory| match &memory.home {
            Home::Segment(segment) => Ok(segment.id()),
            Home::File(_) => Ok(-1),
        };
        handle::with(region, "", id).unwrap_or(-1)
    }

    /// Unmaps a region and closes its descriptor.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements. The mapped memory must not be in use any more.
    fn tw_region_close(region: *mut TwRegion) -> () {
        handle::close(region);
    }
}
