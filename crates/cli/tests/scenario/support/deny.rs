//! Runs the binary where the kernel refuses some of its calls, as containers do.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::{collections::BTreeMap, process::Command, thread};

use super::run::{Ran, run};

/// A call that may be refused, by the name the registry uses.
pub struct Call {
    pub name: &'static str,
    /// Mechanisms list the calls they move bytes by, not those that prepare: nothing works without this one.
    pub listed: &'static str,
    number: i64,
    /// For `ioctl`: only this request.
    request: Option<u64>,
}

const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;

/// The calls a mechanism may be fast by.
pub const FAST: [Call; 11] = [
    call("copy_file_range", libc::SYS_copy_file_range),
    call("sendfile", libc::SYS_sendfile),
    call("splice", libc::SYS_splice),
    call("vmsplice", libc::SYS_vmsplice),
    call("tee", libc::SYS_tee),
    call("fallocate", libc::SYS_fallocate),
    Call { request: Some(FICLONE), ..call("FICLONE", libc::SYS_ioctl) },
    Call { request: Some(FICLONERANGE), ..call("FICLONERANGE", libc::SYS_ioctl) },
    call("io_uring_enter", libc::SYS_io_uring_enter),
    Call { listed: "io_uring_enter", ..call("io_uring_setup", libc::SYS_io_uring_setup) },
    call("io_uring_register", libc::SYS_io_uring_register),
];

/// The calls by which two processes share or use memory.
pub const SHARED: [Call; 3] = [
    call("memfd_create", libc::SYS_memfd_create),
    call("process_vm_readv", libc::SYS_process_vm_readv),
    call("process_vm_writev", libc::SYS_process_vm_writev),
];

/// The call by which a run tells the living from the dead.
pub const LOCK: Call = call("flock", libc::SYS_flock);

const fn call(name: &'static str, number: i64) -> Call {
    Call { name, listed: name, number, request: None }
}

/// Runs a command whose calls of `calls` fail with `errno`; `Err` says why no filter can be set here.
pub fn run_without(calls: &[&Call], errno: i32, command: &mut Command) -> Result<Ran, String> {
    let filter = filter(calls, errno);
    // A filter belongs to a thread and is inherited by what it starts: the rest of the tests never see it.
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            seccompiler::apply_filter(&filter).map_err(|error| error.to_string())?;
            Ok(run(command))
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn filter(calls: &[&Call], errno: i32) -> BpfProgram {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls {
        let requests = rules.entry(call.number).or_default();
        if let Some(request) = call.request {
            let (len, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(1, len, equal, request).unwrap();
            requests.push(SeccompRule::new(vec![condition]).unwrap());
        }
    }
    let refuse = SeccompAction::Errno(errno as u32);
    let here = std::env::consts::ARCH.try_into().expect("an architecture seccompiler knows");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here).unwrap();
    filter.try_into().unwrap()
}
