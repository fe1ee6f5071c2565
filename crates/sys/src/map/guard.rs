//! A copy loop that survives SIGBUS, and the process-wide signal handler for it.
//!
//! The loop is a single instruction at a known address, and the processor's registers contain its
//! progress. The handler therefore needs no state: no thread-locals, no locks, nothing to leak.

use crate::Errno;

/// Copies `len` bytes. Returns the number of bytes copied, which is smaller if a page on either
/// side is not available.
///
/// # Safety
///
/// Both ranges must be mapped, `to` writable, with no Rust reference to `to`'s bytes.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<usize, Errno> {
    x86::install()?;
    // SAFETY: guaranteed by the caller, and the handler is installed.
    let left = unsafe { x86::copy_guarded(to, from, 0, len) };
    Ok(len - left)
}

/// Fails, as there is no guarded copy for this CPU.
///
/// # Safety
///
/// No requirements: it accesses no memory.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy(_to: *mut u8, _from: *const u8, _len: usize) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::Errno;
    use libc::{c_int, c_void, siginfo_t};
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;

    /// Length of `rep movsb`. The instruction is written as bytes, so its length is certain.
    const MOVE_LEN: i64 = 2;

    /// Copies, and returns the number of bytes NOT copied. rcx holds the fourth argument in this
    /// ABI, and is the counter of `rep movsb`. No other instruction must precede that one, so it is
    /// at the function's address. After a fault, rcx contains the number of remaining bytes (Intel
    /// SDM 2B, REP). The direction flag is clear on entry (System V ABI).
    ///
    /// # Safety
    ///
    /// The requirements of `super::copy`; in addition, the handler must be installed.
    #[unsafe(naked)]
    pub(super) unsafe extern "sysv64" fn copy_guarded(
        to: *mut u8,
        from: *const u8,
        spare: usize,
        len: usize,
    ) -> usize {
        std::arch::naked_asm!(".byte 0xf3, 0xa4", "mov rax, rcx", "ret")
    }

    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    /// Installs the handler once. It forwards all other faults to the previous handler.
    pub(super) fn install() -> Result<(), Errno> {
        static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
        *INSTALLED.get_or_init(|| {
            // The previous action is stored before the handler can run, because the handler must
            // not wait for it to be stored.
            PREVIOUS.get_or_init(|| action(None));
            let mut ours = action(None);
            ours.sa_sigaction = on_sigbus as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: sa_mask belongs to `ours`.
            unsafe { libc::sigemptyset(&raw mut ours.sa_mask) };
            // SAFETY: `ours` is fully initialized, and on_sigbus is async-signal-safe.
            match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(crate::io::last_errno()),
            }
        })
    }

    /// Returns the current action for SIGBUS, with its handler replaced if one is given.
    fn action(handler: Option<usize>) -> libc::sigaction {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call only writes the old action to `now`.
        unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), now.as_mut_ptr()) };
        // SAFETY: zeroes are a valid sigaction, and the call only writes a valid one over them.
        let mut now = unsafe { now.assume_init() };
        if let Some(handler) = handler {
            now.sa_sigaction = handler;
            now.sa_flags = 0;
        }
        now
    }

    /// Async-signal-safe: reads one static, then changes one register or forwards the signal.
    extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
        let from_kernel = unsafe { (*info).si_code } > 0;
        // SAFETY: the kernel also passes a valid ucontext, which only the handler may change.
        let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let at = &mut machine.gregs[libc::REG_RIP as usize];
        if from_kernel && *at == copy_guarded as *const () as i64 {
            *at += MOVE_LEN;
            return;
        }
        pass_on(signal, info, context);
    }

    fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let previous = PREVIOUS.get().map_or(libc::SIG_DFL, |action| action.sa_sigaction);
        let wants_info = PREVIOUS.get().is_some_and(|old| old.sa_flags & libc::SA_SIGINFO != 0);
        // SAFETY: as in on_sigbus.
        let from_kernel = unsafe { (*info).si_code } > 0;
        if previous == libc::SIG_IGN && !from_kernel {
            return;
        }
        // A process cannot ignore a fault: the kernel kills it.
        if previous == libc::SIG_DFL || previous == libc::SIG_IGN {
            let default = action(Some(libc::SIG_DFL));
            // SAFETY: `default` is fully initialized; sigaction and raise are async-signal-safe.
            unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
            if !from_kernel {
                // SAFETY: the signal is blocked while this handler runs, and delivered when it
                // returns. A fault does not need this, as its instruction runs again.
                unsafe { libc::raise(signal) };
            }
        } else if wants_info {
            type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
            // SAFETY: SA_SIGINFO means that the previous handler has this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(previous) };
            handler(signal, info, context);
        } else {
            // SAFETY: without SA_SIGINFO the previous handler has this type.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(previous) };
            handler(signal);
        }
    }
}
