//! Formats failed system calls for error messages. A message contains, in this order, the action and the file, the
//! bytes moved, the reason, the call and the errno.

use std::fmt;
use thalweg_sys::Errno;

use crate::{
    error::{AfterBytes, Why},
    shown,
};

/// Formats as `cannot write 'x' after 42 bytes: no space left on device (write: ENOSPC)`.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// The object of the call as users know it: [`quoted`], or words such as `standard input`.
    pub what: &'a str,
    /// The name of the system call.
    pub call: &'a str,
    /// The kernel's error.
    pub errno: Errno,
    /// Bytes moved before the failure.
    pub moved: u64,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = Why { call: self.call, errno: self.errno };
        write!(f, "cannot {} {}{}: {why}", verb(self.call), self.what, AfterBytes(self.moved))
    }
}

/// Formats a failure without a file as `cannot create shared memory: operation not permitted (memfd_create: EPERM)`.
#[derive(Clone, Copy, Debug)]
pub struct Undone<'a> {
    /// The name of the system call. If the name does not show the object of the call, a space and the object follow.
    pub call: &'a str,
    /// The kernel's error.
    pub errno: Errno,
}

impl fmt::Display for Undone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call.split(' ').next().unwrap_or_default();
        let why = Why { call, errno: self.errno };
        write!(f, "cannot {}: {why}", find(DEEDS, self.call).unwrap_or("continue"))
    }
}

/// Formats an error of the standard library like [`Failed`]. Such an error may have no errno.
pub fn of_io(what: &str, call: &str, error: &std::io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(errno) => Failed { what, call, errno, moved: 0 }.to_string(),
        None => format!("cannot {} {what}: {error}", verb(call)),
    }
}

/// Returns `true` if a failure of this call may mean that bytes written before are lost. The kernel reports a failed
/// write-back once and marks the pages clean. Afterwards, neither a second call nor a read proves anything. The file
/// must then not be trusted, and no later run may continue from it.
pub fn loses_written_bytes(call: &str) -> bool {
    matches!(call, "close" | "fsync" | "fdatasync" | "syncfs" | "msync")
}

/// Returns a file's name in quotes, escaped to fit on one line.
pub fn quoted(name: impl AsRef<std::ffi::OsStr>) -> String {
    format!("'{}'", shown(name.as_ref()))
}

/// Returns the verb for the action of a call on its file.
fn verb(call: &str) -> &'static str {
    find(VERBS, call).unwrap_or("use")
}

fn find(table: &[(&[&str], &'static str)], call: &str) -> Option<&'static str> {
    table.iter().find(|(calls, _)| calls.contains(&call)).map(|(_, words)| *words)
}

const DEEDS: &[(&[&str], &str)] = &[
    (
        &["memfd_create", "ftruncate", "fallocate", "shm_open", "shmget", "pwrite to a memfd"],
        "create shared memory",
    ),
    (&["mmap", "mmap of a memfd", "shmat"], "map shared memory"),
    (&["mmap of the peer's memory", "pread of the peer's memory"], "read the memory of the peer"),
    (&["fcntl(F_ADD_SEALS)"], "seal the shared memory"),
    (&["fstat", "shmctl"], "read the attributes of the shared memory"),
    (&["shmctl(IPC_RMID)"], "remove the shared memory"),
    (&["madvise(MADV_POPULATE_*)"], "allocate the pages of the shared memory"),
    (&["socketpair"], "create a socket pair"),
    (&["getsockopt(SO_PEERCRED)"], "get the credentials of the peer"),
    (&["getsockopt(SO_TYPE)"], "read the type of the socket"),
    (&["SOCK_SEQPACKET"], "use a socket that is not of type SOCK_SEQPACKET as a link"),
    (&["accept"], "accept a connection of a peer"),
    (&["sendmsg"], "send to the peer"),
    (&["recvmsg"], "receive from the peer"),
    (&["poll", "futex_waitv"], "wait for the peer"),
    (&["getrandom"], "get random bytes"),
];

const VERBS: &[(&[&str], &str)] = &[
    (&["open", "openat", "openat2", "open_by_handle_at"], "open"),
    (&["read", "pread", "preadv", "readv", "recv", "recvmsg", "poll"], "read"),
    (&["write", "pwrite", "pwritev", "writev", "send", "sendmsg", "faccessat2 W_OK"], "write"),
    (&["stat", "fstat", "lstat", "newfstatat", "statx", "fstatfs", "statfs"], "stat"),
    (&["faccessat2 R_OK"], "open"),
    (&["find"], "find"),
    (&["getdents64", "readdir"], "read directory"),
    (&["mkdir", "mkdirat"], "create directory"),
    (&["mknod", "mknodat", "mkfifoat"], "create special file"),
    (&["create", "memfd_create"], "create"),
    (&["rename", "renameat", "renameat2"], "rename"),
    (&["link", "linkat"], "link"),
    (&["symlink", "symlinkat"], "create symbolic link"),
    (&["readlink", "readlinkat"], "read symbolic link"),
    (&["unlink", "unlinkat", "rmdir"], "remove"),
    (&["ftruncate", "truncate"], "set the size of"),
    (&["fallocate", "posix_fallocate"], "allocate space for"),
    (&["chmod", "fchmod", "fchmodat"], "set the permissions of"),
    (&["chown", "fchown", "fchownat", "lchown"], "set the owner of"),
    (&["utimensat", "futimens"], "set the times of"),
    (&["setxattr", "lsetxattr", "fsetxattr"], "set an extended attribute of"),
    (
        &["fsetxattr system.posix_acl_access", "fsetxattr system.posix_acl_default"],
        "preserve the ACL of",
    ),
    (&["removexattr", "lremovexattr", "fremovexattr"], "remove an extended attribute of"),
    (&["getxattr", "lgetxattr", "fgetxattr"], "read an extended attribute of"),
    (&["listxattr", "llistxattr", "flistxattr"], "list the extended attributes of"),
    (&["fsync", "fdatasync", "syncfs"], "sync"),
    (&["close"], "close"),
    (&["lseek"], "seek in"),
    (&["flock"], "lock"),
    (&["mmap"], "map"),
    (&["FICLONE", "FICLONERANGE"], "clone into"),
    (&["copy_file_range", "sendfile", "splice", "vmsplice", "tee"], "copy"),
    (&["connect"], "connect to"),
    (&["bind", "listen", "accept", "accept4"], "listen on"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_tried_why_it_failed_and_the_call() {
        let what = quoted("x/y");
        let failed = Failed { what: &what, call: "openat", errno: Errno::NOENT, moved: 0 };
        assert_eq!(
            failed.to_string(),
            "cannot open 'x/y': no such file or directory (openat: ENOENT)"
        );
        let full = Failed { call: "write", errno: Errno::NOSPC, moved: 42, ..failed };
        assert_eq!(
            full.to_string(),
            "cannot write 'x/y' after 42 bytes: no space left on device (write: ENOSPC)"
        );
        let unknown = Failed { errno: Errno::LIBBAD, ..failed }.to_string();
        assert!(unknown.ends_with(&format!("(openat: errno {})", Errno::LIBBAD.raw_os_error())));
    }

    #[test]
    fn what_has_no_name_is_said_by_what_was_to_be_done() {
        let said = |call, errno| Undone { call, errno }.to_string();
        assert_eq!(
            said("mmap of the peer's memory", Errno::NOMEM),
            "cannot read the memory of the peer: cannot allocate memory (mmap: ENOMEM)"
        );
        assert_eq!(said("ioctl", Errno::NODEV), "cannot continue: no such device (ioctl: ENODEV)");
        let full = std::io::Error::from(Errno::NOSPC);
        assert_eq!(
            of_io("'x'", "write", &full),
            "cannot write 'x': no space left on device (write: ENOSPC)"
        );
        assert_eq!(of_io("'x'", "read", &std::io::Error::other("half")), "cannot read 'x': half");
    }

    #[test]
    fn no_call_has_two_verbs() {
        for table in [VERBS, DEEDS] {
            let calls: Vec<&str> = table.iter().flat_map(|(calls, _)| *calls).copied().collect();
            for (n, call) in calls.iter().enumerate() {
                assert!(!calls[..n].contains(call), "{call}");
            }
        }
    }
}
