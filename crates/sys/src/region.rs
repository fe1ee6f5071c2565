//! Memory that is shared with other processes, or allocated as a buffer. It is a mapped descriptor, a System V segment,
//! or anonymous memory on small, transparent or explicit huge pages.
//!
//! A region returns a raw pointer only: code that shares memory must justify each load and store. A region never grows,
//! shrinks or moves.

use crate::Errno;
use crate::fault::{Call, uncounted};
use crate::io::last_errno;
use crate::memfd::{self, FailedCall};
use rustix::fd::{AsFd, FromRawFd, OwnedFd};
pub use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::param::page_size;
use std::ptr::NonNull;

/// Access to a shared region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Reading only. Writes of other processes are visible. A store raises SIGSEGV.
    Read,
    /// Reading and writing. Other processes see the writes.
    Write,
    /// Reading and writing. Writes are private (copy on write).
    Private,
}

/// The kind of pages of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary pages of the machine.
    Small,
    /// Ordinary memory, aligned for transparent huge pages. If the kernel does not support these, it uses small pages.
    Transparent,
    /// Pages of the administrator's pool (`vm.nr_hugepages`): ENOMEM if it is empty.
    Pool,
}

#[derive(Debug)]
enum RegionForm {
    Mapped,
    Attached,
}

/// A block of memory. It is unmapped or detached when dropped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    /// The requested length, from `base`.
    len: usize,
    /// The address to unmap; `mapped` is the length to unmap.
    start: NonNull<u8>,
    mapped: usize,
    writable: bool,
    form: RegionForm,
}

// SAFETY: memory belongs to the process, not to a thread, and Region hands out no references.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `len` bytes of a file or memfd. EINVAL for `len` 0. A load beyond the end of the file raises
    /// SIGBUS. Map only files that are trusted or sealed against shrinking.
    pub fn of_file(fd: impl AsFd, len: usize, sharing: Sharing) -> Result<Self, Errno> {
        check_len(len)?;
        let (protection, flags) = match sharing {
            Sharing::Read => (ProtFlags::READ, MapFlags::SHARED),
            Sharing::Write => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            Sharing::Private => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE),
        };
        let base = uncounted(Call::Mmap, || {
            // SAFETY: a null hint lets the kernel choose unused addresses.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) }
        })?;
        Self::new(base.cast(), len, sharing != Sharing::Read, RegionForm::Mapped)
    }

    /// Maps `len` bytes of zeroed private memory. With [`Pages::Pool`], the mapped length is rounded up to whole huge
    /// pages.
    pub fn anonymous(len: usize, pages: Pages) -> Result<Self, Errno> {
        check_len(len)?;
        let huge = huge_page_size();
        let (mapped, flags) = match pages {
            Pages::Small => (len, MapFlags::PRIVATE),
            // Additional space to move the start to the alignment of a huge page.
            Pages::Transparent => (len.checked_add(huge).ok_or(Errno::NOMEM)?, MapFlags::PRIVATE),
            Pages::Pool => {
                let whole = len.checked_next_multiple_of(huge).ok_or(Errno::NOMEM)?;
                (whole, MapFlags::PRIVATE | MapFlags::HUGETLB)
            }
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose unused addresses.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
        let mut region = Self::new(base.cast(), mapped, true, RegionForm::Mapped)?;
        region.len = len;
        if pages == Pages::Transparent {
            let lead = region.start.as_ptr().align_offset(huge).min(huge);
            // SAFETY: lead <= huge and mapped = len + huge, so base + len stays inside.
            region.base = unsafe { region.start.add(lead) };
            region.advise(Advice::LinuxHugepage).or_else(refused)?;
        }
        Ok(region)
    }

    /// Attaches a System V segment. EINVAL if the segment is shorter than `len`. EIDRM or EINVAL if it was removed;
    /// EACCES if this user has no access.
    pub fn of_segment(segment: Segment, len: usize) -> Result<Self, Errno> {
        check_len(len)?;
        if segment.len()? < len {
            return Err(Errno::INVAL);
        }
        // SAFETY: a null address lets the kernel choose unused addresses.
        let base = unsafe { libc::shmat(segment.0, std::ptr::null(), 0) };
        if base as isize == -1 {
            return Err(last_errno());
        }
        Self::new(base.cast(), len, true, RegionForm::Attached)
    }

    fn new(base: *mut u8, len: usize, writable: bool, form: RegionForm) -> Result<Self, Errno> {
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, start: base, mapped: len, writable, form })
    }

    /// Returns the first byte. Valid for [`len`](Self::len) bytes while this value lives, and for stores only if
    /// [`is_writable`](Self::is_writable). Other processes may write to it at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the number of usable bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always returns `false`: an empty region cannot be created.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if stores are allowed.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Makes every page resident now (MADV_POPULATE_READ or _WRITE, Linux 5.14). This one call replaces a later page
    /// fault for each page. EINVAL on older kernels.
    pub fn populate(&self) -> Result<(), Errno> {
        self.advise(if self.writable {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        })
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        let whole = self.len.next_multiple_of(page_size());
        // SAFETY: base is page-aligned and its pages up to `whole` are mapped; no advice used
        // here changes bytes.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), whole, advice) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let start = self.start.as_ptr();
        match self.form {
            // SAFETY: start and mapped are from mmap; the region hands out no references.
            RegionForm::Mapped => drop(unsafe { rustix::mm::munmap(start.cast(), self.mapped) }),
            // SAFETY: start is from shmat.
            RegionForm::Attached => drop(unsafe { libc::shmdt(start.cast()) }),
        }
    }
}

/// A System V shared memory segment, identified by its number. It persists until [`remove`](Segment::remove) was called
/// and the last process has detached it. Remove it as soon as all processes have attached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment(i32);

impl Segment {
    /// `shmget(2)` with IPC_PRIVATE, accessible to this user only. ENOSPC, EINVAL: beyond the machine's limits
    /// (`kernel.shmmni`, `kernel.shmmax`). ENOSYS, EPERM: not available here.
    pub fn create(len: usize) -> Result<Self, Errno> {
        check_len(len)?;
        // SAFETY: no pointers.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600) };
        if id < 0 { Err(last_errno()) } else { Ok(Self(id)) }
    }

    /// Returns the segment of this number, received from another process.
    pub fn of_id(id: i32) -> Self {
        Self(id)
    }

    /// Returns the number of the segment.
    pub fn id(self) -> i32 {
        self.0
    }

    /// Returns the length of the segment in bytes.
    pub fn len(self) -> Result<usize, Errno> {
        let mut facts = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
        // SAFETY: IPC_STAT writes one shmid_ds.
        if unsafe { libc::shmctl(self.0, libc::IPC_STAT, facts.as_mut_ptr()) } < 0 {
            return Err(last_errno());
        }
        // SAFETY: zeroes are a valid shmid_ds; the call has filled it.
        Ok(unsafe { facts.assume_init() }.shm_segsz)
    }

    /// Returns `true` if the segment has no bytes. The kernel creates no such segment.
    pub fn is_empty(self) -> Result<bool, Errno> {
        Ok(self.len()? == 0)
    }

    /// `shmctl(2)` with IPC_RMID: the kernel destroys the segment when the last process has detached it.
    pub fn remove(self) -> Result<(), Errno> {
        // SAFETY: IPC_RMID takes no buffer.
        match unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

/// Creates POSIX shared memory of `len` bytes and unlinks its name at once. Pass the descriptor to other processes.
/// Unlike a memfd, this memory cannot be sealed: any process with the descriptor may shrink it. Makes three calls.
pub fn posix(len: usize) -> Result<OwnedFd, FailedCall> {
    const MOST_NAMES: u32 = 100;
    let failed = FailedCall::of("shm_open");
    check_len(len).map_err(&failed)?;
    for n in 0..MOST_NAMES {
        let name = format!("/thalweg-{}-{n}", std::process::id());
        let name = std::ffi::CString::new(name).map_err(|_| failed(Errno::INVAL))?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::shm_open(name.as_ptr(), flags, 0o600) };
        if fd < 0 {
            match last_errno() {
                Errno::EXIST => continue,
                errno => return Err(failed(errno)),
            }
        }
        // SAFETY: shm_open has just returned this descriptor, which only this function has.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the name is a C string.
        unsafe { libc::shm_unlink(name.as_ptr()) };
        memfd::set_size(&fd, len as u64)?;
        return Ok(fd);
    }
    Err(failed(Errno::EXIST))
}

/// `F_ADD_SEALS` (fcntl(2)). EBUSY: `WRITE` while a writable mapping exists. EPERM: sealed against further seals.
pub fn seal(fd: impl AsFd, seals: SealFlags) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(fd, seals)
}

/// Returns `true` if this is a memfd of ordinary pages with these seals and at least `len` bytes. With
/// [`SealFlags::SHRINK`], loads from its first `len` bytes can then no longer fault. `false` for any other object.
pub fn is_sealed(fd: impl AsFd, seals: SealFlags, len: u64) -> bool {
    let sealed = rustix::fs::fcntl_get_seals(&fd).is_ok_and(|found| found.contains(seals));
    sealed && memfd::facts(&fd).is_ok_and(|facts| facts.ordinary && facts.len >= len)
}

/// Returns the size of a huge page in bytes; 2 MiB if the kernel does not report it.
pub fn huge_page_size() -> usize {
    let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let told = told.ok().and_then(|text| text.trim().parse::<usize>().ok());
    told.filter(|size| size.is_power_of_two() && *size >= page_size()).unwrap_or(2 << 20)
}

/// Accepts EINVAL, which a kernel without transparent huge pages returns. The pages are then small.
fn refused(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::INVAL { Ok(()) } else { Err(errno) }
}

fn check_len(len: usize) -> Result<(), Errno> {
    if len == 0 || isize::try_from(len).is_err() { Err(Errno::INVAL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Held by tests that create or list names of POSIX memory.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Writes the first and the last byte and reads them back.
    fn works(region: &Region) {
        let ends = [0, region.len() - 1].map(|at| {
            // SAFETY: `at` is inside the region, which no other code knows.
            unsafe { region.as_ptr().add(at) }
        });
        for (n, end) in ends.into_iter().enumerate() {
            // SAFETY: as above, and the region is writable.
            unsafe { end.write_volatile(n as u8 + 7) };
            // SAFETY: as above.
            assert_eq!(unsafe { end.read_volatile() }, n as u8 + 7);
        }
    }

    #[test]
    fn anonymous_memory_comes_on_every_kind_of_page_or_is_refused() {
        for len in [1, 4096, (3 << 20) + 1] {
            for pages in [Pages::Small, Pages::Transparent] {
                let region = Region::anonymous(len, pages).unwrap();
                assert_eq!(region.len(), len);
                assert!(matches!(region.populate(), Ok(()) | Err(Errno::INVAL)));
                works(&region);
                if pages == Pages::Transparent {
                    assert_eq!(region.as_ptr().align_offset(huge_page_size()), 0);
                }
            }
            match Region::anonymous(len, Pages::Pool) {
                Ok(region) => works(&region),
                Err(errno) => assert!(matches!(errno, Errno::NOMEM | Errno::INVAL), "{errno}"),
            }
        }
        assert_eq!(Region::anonymous(0, Pages::Small).unwrap_err(), Errno::INVAL);
        assert_eq!(Region::anonymous(usize::MAX, Pages::Pool).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_segment_is_gone_once_removed_and_let_go() {
        let segment = Segment::create(5000).unwrap();
        let region = Region::of_segment(segment, 5000).unwrap();
        segment.remove().unwrap();
        works(&region);
        let again = Region::of_segment(segment, 5000).unwrap();
        drop((region, again));
        assert!(matches!(segment.len(), Err(Errno::INVAL | Errno::IDRM)));
        assert!(Region::of_segment(segment, 1).is_err());
    }

    #[test]
    fn a_segment_is_not_attached_beyond_its_end() {
        let segment = Segment::create(4096).unwrap();
        assert_eq!(Region::of_segment(segment, 4097).unwrap_err(), Errno::INVAL);
        segment.remove().unwrap();
    }

    #[test]
    fn a_sealed_memfd_keeps_its_size_and_says_so() {
        let fd = match memfd::create("test", 8192) {
            Ok(fd) => fd,
            Err(failed) => return assert!(matches!(failed.errno, Errno::NOSYS | Errno::PERM)),
        };
        let size = SealFlags::SHRINK | SealFlags::GROW;
        assert!(!is_sealed(&fd, size, 1));
        let region = Region::of_file(&fd, 8192, Sharing::Write).unwrap();
        assert_eq!(seal(&fd, SealFlags::WRITE), Err(Errno::BUSY));
        seal(&fd, size).unwrap();
        assert!(is_sealed(&fd, size, 8192) && !is_sealed(&fd, size, 8193));
        assert_eq!(crate::io::ftruncate(&fd, 0), Err(Errno::PERM));
        works(&region);
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(!is_sealed(&pipe, size, 0));
    }

    #[test]
    fn posix_memory_is_shared_by_its_descriptor_and_has_no_name() {
        let _alone = ALONE.lock();
        let fd = posix(8192).unwrap();
        let (one, two) = (
            Region::of_file(&fd, 8192, Sharing::Write).unwrap(),
            Region::of_file(&fd, 8192, Sharing::Private).unwrap(),
        );
        works(&one);
        // SAFETY: the first byte of a region that no process writes now.
        assert_eq!(unsafe { two.as_ptr().read_volatile() }, 7);
        works(&two);
        let ours = format!("thalweg-{}-", std::process::id());
        let left = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        assert_eq!(left.count(), 0);
        let read = Region::of_file(&fd, 8192, Sharing::Read).unwrap();
        assert!(!read.is_writable());
    }

    #[cfg(feature = "faults")]
    #[test]
    fn a_failed_size_of_new_memory_is_that_of_ftruncate_and_a_signal_is_no_failure() {
        use crate::fault::{Call, Effect, Rule, Script};
        type Maker = fn() -> Result<OwnedFd, FailedCall>;
        let _alone = ALONE.lock();
        let makers: [(&str, Maker); 2] =
            [("posix", || posix(8192)), ("memfd", || memfd::create("test", 8192))];
        for (name, maker) in makers {
            let refusal = Rule::always(Call::Ftruncate, Effect::Errno(Errno::FBIG));
            let refused = Script::new(vec![refusal]).run(maker).value.err();
            let expected = FailedCall { call: "ftruncate", errno: Errno::FBIG };
            assert_eq!(refused, Some(expected), "{name}");
            let signal = Rule::once(Call::Ftruncate, 1, Effect::Errno(Errno::INTR));
            let run = Script::new(vec![signal]).run(maker);
            assert_eq!((run.value.err(), run.fired), (None, 1), "{name}");
        }
        assert_eq!(posix(0).unwrap_err(), FailedCall { call: "shm_open", errno: Errno::INVAL });
    }
}
