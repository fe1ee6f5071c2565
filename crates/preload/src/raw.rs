//! Raw system calls: there is no libc here, and the program's errno must not change.

use core::arch::asm;

/// Makes a system call. A negative result is a negated errno.
///
/// # Safety
/// The requirements of the system call for its arguments.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11, and memory only as guaranteed by the caller.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number.cast_signed() => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes a system call. A negative result is a negated errno.
///
/// # Safety
/// The requirements of the system call for its arguments.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes x0, and memory only as guaranteed by the caller.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inout("x0") args[0].cast_signed() => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const GETPID: usize = 39;
    pub const GETTID: usize = 186;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const LSEEK: usize = 62;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const TGKILL: usize = 131;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const GETPID: usize = 172;
    pub const GETTID: usize = 178;
    pub const MMAP: usize = 222;
}

const AT_FDCWD: usize = (-100_isize).cast_unsigned();
/// Mode for [`File::open`]: read only.
pub const O_RDONLY: usize = 0;
/// Mode for [`File::open`]: read and write.
pub const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const EINTR: isize = -4;
const SIGABRT: usize = 6;
const SIG_UNBLOCK: usize = 1;

/// An open file, which is closed on drop.
pub struct File(usize);

impl File {
    /// Opens an existing file. The path must end with a zero byte. `mode` is [`O_RDONLY`] or [`O_RDWR`].
    pub fn open(path: &[u8], mode: usize) -> Option<Self> {
        if path.last() != Some(&0) {
            return None;
        }
        let args = [AT_FDCWD, path.as_ptr().addr(), O_CLOEXEC | mode, 0, 0, 0];
        // SAFETY: the path is terminated, as checked above; no memory is written.
        let fd = unsafe { call(number::OPENAT, args) };
        usize::try_from(fd).ok().map(Self)
    }

    /// Reads the next bytes. Returns 0 at the end and on an error.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        loop {
            let args = [self.0, into.as_mut_ptr().addr(), into.len(), 0, 0, 0];
            // SAFETY: writes at most the length of the slice.
            let got = unsafe { call(number::READ, args) };
            if got != EINTR {
                return usize::try_from(got).unwrap_or(0);
            }
        }
    }

    /// Returns the size of the file, or 0 if it cannot be determined.
    pub fn len(&self) -> usize {
        const SEEK_END: usize = 2;
        // SAFETY: takes only numbers.
        let at = unsafe { call(number::LSEEK, [self.0, 0, SEEK_END, 0, 0, 0]) };
        usize::try_from(at).unwrap_or(0)
    }

    /// Maps the first bytes of the file, shared with other processes, for the rest of the process.
    pub fn map_shared<T>(&self, len: usize) -> Option<*mut T> {
        const READ_WRITE: usize = 3;
        const MAP_SHARED: usize = 1;
        let args = [0, len, READ_WRITE, MAP_SHARED, self.0, 0];
        // SAFETY: a new mapping at an address chosen by the kernel affects no other memory.
        let at = unsafe { call(number::MMAP, args) };
        let at = usize::try_from(at).ok()?;
        Some(core::ptr::with_exposed_provenance_mut(at))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this object's own descriptor, which is not used afterwards.
        unsafe { call(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Writes the reason to standard error and aborts.
pub fn abort_because(words: &[u8]) -> ! {
    // SAFETY: reads the slice. A write error is ignored, because there is no other way to report the reason.
    unsafe { call(number::WRITE, [2, words.as_ptr().addr(), words.len(), 0, 0, 0]) };
    abort()
}

/// Ends the process with SIGABRT. Raises the signal once with the program's own disposition. If the process survives, because the
/// signal was blocked or its handler returned, unblocks the signal and raises it with the default action.
pub fn abort() -> ! {
    raise();
    // The kernel's sigaction: handler, flags, restorer, mask. All zeroes are the default action.
    let default = [0_u64; 4];
    let mask = 1_u64 << (SIGABRT - 1);
    let args = [SIGABRT, default.as_ptr().addr(), 0, size_of_val(&mask), 0, 0];
    // SAFETY: reads one sigaction of four words.
    unsafe { call(number::RT_SIGACTION, args) };
    let args = [SIG_UNBLOCK, (&raw const mask).addr(), 0, size_of_val(&mask), 0, 0];
    // SAFETY: reads one word.
    unsafe { call(number::RT_SIGPROCMASK, args) };
    loop {
        raise();
    }
}

fn raise() {
    // SAFETY: takes no arguments.
    let process = unsafe { call(number::GETPID, [0; 6]) };
    // SAFETY: takes no arguments.
    let thread = unsafe { call(number::GETTID, [0; 6]) };
    let args = [process.cast_unsigned(), thread.cast_unsigned(), SIGABRT, 0, 0, 0];
    // SAFETY: takes only numbers, which identify this thread.
    unsafe { call(number::TGKILL, args) };
}
