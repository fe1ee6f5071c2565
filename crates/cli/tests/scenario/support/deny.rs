//! Runs the binary with a seccomp filter that refuses some system calls, as containers do.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::{collections::BTreeMap, process::Command, thread};

use super::run::{Ran, Running};

/// A call that may be refused, with the name that the registry of mechanisms uses.
pub struct Call {
    pub name: &'static str,
    /// The call that mechanisms list instead of this one. It differs from `name` if this call only prepares the
    /// transfer, because mechanisms list only calls that move bytes.
    pub listed: &'static str,
    number: i64,
    /// If set, only calls with these bits in this argument are refused, such as a request of `ioctl` or a flag of
    /// `openat`.
    only: Option<Argument>,
}

#[derive(Clone, Copy)]
struct Argument {
    index: u8,
    mask: u64,
    value: u64,
}

const fn request(value: u64) -> Argument {
    Argument { index: 1, mask: 0xffff_ffff, value }
}

const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;

/// Calls that only the fast mechanisms need.
pub const FAST: [Call; 11] = [
    call("copy_file_range", libc::SYS_copy_file_range),
    call("sendfile", libc::SYS_sendfile),
    call("splice", libc::SYS_splice),
    call("vmsplice", libc::SYS_vmsplice),
    call("tee", libc::SYS_tee),
    call("fallocate", libc::SYS_fallocate),
    Call { only: Some(request(FICLONE)), ..call("FICLONE", libc::SYS_ioctl) },
    Call { only: Some(request(FICLONERANGE)), ..call("FICLONERANGE", libc::SYS_ioctl) },
    call("io_uring_enter", libc::SYS_io_uring_enter),
    Call { listed: "io_uring_enter", ..call("io_uring_setup", libc::SYS_io_uring_setup) },
    call("io_uring_register", libc::SYS_io_uring_register),
];

/// Calls with which two processes share memory.
pub const SHARED: [Call; 3] = [
    call("memfd_create", libc::SYS_memfd_create),
    call("process_vm_readv", libc::SYS_process_vm_readv),
    call("process_vm_writev", libc::SYS_process_vm_writev),
];

/// The call with which a run finds out whether the process that made a partial file is still alive.
pub const LOCK: Call = call("flock", libc::SYS_flock);

/// The calls that name or rename a file.
pub const RENAME: Call = call("renameat2", libc::SYS_renameat2);
pub const LINK: Call = call("linkat", libc::SYS_linkat);

/// The call that makes an unnamed file (O_TMPFILE).
const TMPFILE: u64 = 0o20_000_000;
pub const NAMELESS: Call = Call {
    only: Some(Argument { index: 2, mask: TMPFILE, value: TMPFILE }),
    ..call("openat", libc::SYS_openat)
};

/// The calls that list, read and set extended attributes of an open file.
pub const LIST_ATTRIBUTES: Call = call("flistxattr", libc::SYS_flistxattr);
/// The call that lists extended attributes by path, since Linux 6.13. libc has no constant for it.
pub const LIST_ATTRIBUTES_AT: Call = call("listxattrat", 465);
pub const GET_ATTRIBUTE: Call = call("fgetxattr", libc::SYS_fgetxattr);
pub const SET_ATTRIBUTE: Call = call("fsetxattr", libc::SYS_fsetxattr);

/// The call that opens a path beneath a directory.
pub const OPEN_BENEATH: Call = call("openat2", libc::SYS_openat2);

/// The call that brings a file system to stable storage.
pub const SYNC_SYSTEM: Call = call("syncfs", libc::SYS_syncfs);

/// The call that makes a directory.
pub const FOLDER: Call = call("mkdirat", libc::SYS_mkdirat);

const fn call(name: &'static str, number: i64) -> Call {
    Call { name, listed: name, number, only: None }
}

/// Runs a command for which these calls fail with `errno`. Returns the reason as an error if no filter can be set.
pub fn run_without(calls: &[&Call], errno: i32, command: &mut Command) -> Result<Ran, String> {
    start_without(calls, errno, command).map(Running::finish)
}

/// Like [`run_without`], but does not wait for the end of the command.
pub fn start_without(
    calls: &[&Call],
    errno: i32,
    command: &mut Command,
) -> Result<Running, String> {
    start_filtered(&[filter(calls, errno)], command)
}

fn start_filtered(filters: &[BpfProgram], command: &mut Command) -> Result<Running, String> {
    // A filter applies to one thread and its child processes, so a new thread sets it. Other tests are not affected.
    let set = |command: &mut Command| {
        thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                for filter in filters {
                    seccompiler::apply_filter(filter).map_err(|error| error.to_string())?;
                }
                Ok(command.spawn())
            });
            spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    Running::start_by(command, set)
}

/// Runs a command that can start processes but no second thread, as under a limit on tasks.
pub fn run_without_threads(command: &mut Command) -> Result<Ran, String> {
    let flag = libc::CLONE_THREAD as u64;
    let thread = Call {
        only: Some(Argument { index: 0, mask: flag, value: flag }),
        ..call("clone", libc::SYS_clone)
    };
    // The flags of clone3 are in memory, which a filter cannot read. With ENOSYS, libc calls clone instead.
    let unseen = call("clone3", libc::SYS_clone3);
    let filters = [filter(&[&thread], libc::EAGAIN), filter(&[&unseen], libc::ENOSYS)];
    start_filtered(&filters, command).map(Running::finish)
}

fn filter(calls: &[&Call], errno: i32) -> BpfProgram {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls {
        let requests = rules.entry(call.number).or_default();
        if let Some(Argument { index, mask, value }) = call.only {
            let (len, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask));
            let condition = SeccompCondition::new(index, len, equal, value).unwrap();
            requests.push(SeccompRule::new(vec![condition]).unwrap());
        }
    }
    let refuse = SeccompAction::Errno(errno as u32);
    let here = std::env::consts::ARCH.try_into().expect("an architecture seccompiler knows");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here).unwrap();
    filter.try_into().unwrap()
}
