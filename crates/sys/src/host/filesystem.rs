//! The file system of a descriptor, and its mount options.

use crate::Errno;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, StatxFlags, fstat, fstatfs, major, minor, statx};
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// The properties of a file system that matter to transfers and their measurements.
#[derive(Clone, Debug)]
pub struct FileSystem {
    /// The kernel's name for the type: "ext4", "fuse.sshfs". ext2 and ext3 are reported as "ext4", because the ext4
    /// code serves them. If no mount is found (pipes, sockets, memfds, other mount namespaces), the name comes from the
    /// magic number, or is that number.
    pub name: String,
    /// The device number (st_dev).
    pub dev: u64,
    /// `true` if another machine or a user-space process stores its bytes.
    pub remote: bool,
    /// The mount id in the mount table, if the kernel reports it.
    mount: Option<u64>,
    options: OnceLock<String>,
}

impl FileSystem {
    /// Creates a description from a type name and mount options only.
    pub fn named(name: &str, options: &str) -> Self {
        let options = OnceLock::from(options.to_owned());
        Self { name: name.to_owned(), dev: 0, remote: is_remote(name), mount: None, options }
    }

    /// Returns the mount options, then the file system's own options, without repeats: "rw,relatime,discard". The first
    /// call reads the mount table. If the file system is no longer mounted, the result is empty.
    pub fn options(&self) -> &str {
        self.options.get_or_init(|| self.mounted(|mount| mount.options()).unwrap_or_default())
    }

    /// Returns `true` if file systems of this type have no clones (ioctl_ficlonerange(2)) in Linux 6.18. Later kernels
    /// may add clones.
    pub fn is_known_without_clones(&self) -> bool {
        ["ext4", "tmpfs", "ramfs"].contains(&self.name.as_str())
    }

    /// Applies `of` to the file system's line in the mount table.
    fn mounted<T>(&self, of: impl FnOnce(Mount<'_>) -> T) -> Option<T> {
        let table = mount_table().ok()?;
        let table = String::from_utf8_lossy(&table);
        let mounts = || table.lines().filter_map(Mount::parse);
        let device = format!("{}:{}", major(self.dev), minor(self.dev));
        // The mount id is tried first, because a btrfs subvolume has a device number of its own, which no mount shows.
        // If several mounts are stacked, the last line is the visible one.
        let found = mounts().find(|mount| self.mount == Some(mount.number));
        found.or_else(|| mounts().rfind(|mount| mount.device == device)).map(of)
    }
}

/// Returns the file system of `fd`. Makes three calls, none of which touch the file's bytes. Unless the type is one of
/// the usual ones, also reads the mount table, `/proc/self/mountinfo`.
pub fn filesystem(fd: impl AsFd) -> Result<FileSystem, Errno> {
    let fd = fd.as_fd();
    let name = name_of_magic(fstatfs(fd)?.f_type as u32);
    let (dev, mount) = (fstat(fd)?.st_dev, mount_number(fd));
    let mut found = FileSystem { name, dev, remote: false, mount, options: OnceLock::new() };
    if !is_usual(&found.name) {
        let told = found.mounted(|mount| (mount.kind.to_owned(), mount.options()));
        if let Some((name, options)) = told {
            (found.name, found.options) = (name, options.into());
        }
    }
    found.remote = is_remote(&found.name);
    Ok(found)
}

/// Returns `true` for the usual types that this kernel stores on a disk or in memory.
fn is_usual(name: &str) -> bool {
    ["ext4", "xfs", "btrfs", "tmpfs", "ramfs"].contains(&name)
}

/// Returns `true` if close(2) may still report that bytes were not stored. Makes one call; the answer applies to all
/// files of this file system. `false` only for the usual types, which have no `flush` operation in the Linux kernel.
pub fn may_fail_at_close(fd: impl AsFd) -> Result<bool, Errno> {
    Ok(!is_usual(&name_of_magic(fstatfs(fd)?.f_type as u32)))
}

/// Reads the mount table. The kernel reports no size for it, and returns at most a page per call.
fn mount_table() -> std::io::Result<Vec<u8>> {
    let table = File::open("/proc/self/mountinfo")?;
    // The buffer is allocated in advance. Otherwise, the standard library would read 32 bytes, then 64, and so on.
    let mut bytes = Vec::with_capacity(16 * rustix::param::page_size());
    table.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the mount id in the mount table (statx(2), Linux 5.8).
fn mount_number(fd: BorrowedFd<'_>) -> Option<u64> {
    let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let has = told.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    has.then_some(told.stx_mnt_id)
}

/// A line of mountinfo (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq, Eq)]
struct Mount<'t> {
    number: u64,
    device: &'t str,
    own: &'t str,
    kind: &'t str,
    shared: &'t str,
}

impl<'t> Mount<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        // Spaces inside a field are written as \040, so " - " is always the separator.
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let number = mount.next()?.parse().ok()?;
        let device = mount.nth(1)?;
        let own = mount.nth(2)?;
        let mut system = system.split(' ');
        let kind = system.next()?;
        let shared = system.nth(1)?;
        Some(Self { number, device, own, kind, shared })
    }

    fn options(&self) -> String {
        let mut seen: Vec<&str> = Vec::new();
        for option in self.own.split(',').chain(self.shared.split(',')) {
            if !option.is_empty() && !seen.contains(&option) {
                seen.push(option);
            }
        }
        seen.join(",")
    }
}

fn is_remote(name: &str) -> bool {
    const REMOTE: [&str; 18] = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "virtiofs", "afs", "lustre", "gfs2",
        "ocfs2", "coda", "orangefs", "pvfs2", "beegfs", "gpfs", "ncpfs",
    ];
    REMOTE.contains(&name) || name.starts_with("fuse")
}

/// Returns the name for a magic number (linux/magic.h). ext2, ext3 and ext4 share one number, and all FUSE file systems
/// share another. Only the mount table distinguishes file systems that share a number.
fn name_of_magic(magic: u32) -> String {
    let name = match magic {
        0xef53 => "ext4",
        0x0102_1994 => "tmpfs",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb3",
        0x6573_5546 => "fuse",
        0x00c3_6400 => "ceph",
        0x0102_1997 => "9p",
        0x5346_414f => "afs",
        0x0bd0_0bd0 => "lustre",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0xf2f5_2010 => "f2fs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x7366_746e => "ntfs3",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x8584_58f6 => "ramfs",
        0x9584_58f6 => "hugetlbfs",
        0x7371_7368 => "squashfs",
        0x5049_5045 => "pipefs",
        0x534f_434b => "sockfs",
        0x0904_1934 => "anon_inodefs",
        0x1cd1 => "devpts",
        other => return format!("0x{other:x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;

    #[test]
    fn a_line_of_the_mount_table_is_taken_apart() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.number, mount.device, mount.kind), (36, "98:0", "ext3"));
        assert_eq!(mount.options(), "rw,noatime,errors=continue");
        let plain = Mount::parse("1 0 0:5 / /dev rw - devtmpfs dev rw,size=1k").unwrap();
        assert_eq!((plain.own, plain.shared), ("rw", "rw,size=1k"));
        assert_eq!(Mount::parse("36 35 98:0 /mnt1 rw"), None);
        assert_eq!(Mount::parse(""), None);
    }

    #[test]
    fn memory_reports_nothing_at_close_and_unknown_file_systems_may() {
        let memory = rustix::fs::memfd_create("fs", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(may_fail_at_close(&memory), Ok(false));
        assert_eq!(may_fail_at_close(File::open("/proc/self/stat").unwrap()), Ok(true));
    }

    #[test]
    fn options_are_those_of_the_mount_table() {
        let root = filesystem(File::open("/").unwrap()).unwrap();
        let told = root.mounted(|mount| mount.options()).unwrap();
        assert_eq!((root.options(), root.clone().options()), (told.as_str(), told.as_str()));
        assert_eq!(FileSystem::named("ext4", "rw").options(), "rw");
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(filesystem(&memory).unwrap().options(), "");
    }

    #[test]
    fn what_others_keep_is_remote() {
        assert!(["nfs4", "fuse.sshfs", "9p", "smb3"].into_iter().all(is_remote));
        assert!(!["ext4", "tmpfs", "overlay", "proc"].into_iter().any(is_remote));
        assert_eq!(name_of_magic(0xdead), "0xdead");
    }

    #[test]
    fn known_places_have_known_names() {
        let proc = filesystem(File::open("/proc/self/status").unwrap()).unwrap();
        assert_eq!((proc.name.as_str(), proc.remote), ("proc", false));
        assert!(proc.options().starts_with('r'), "{proc:?}");
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(filesystem(&reader).unwrap().name, "pipefs");
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(filesystem(&memory).unwrap().name, "tmpfs");
        let root = filesystem(File::open("/").unwrap()).unwrap();
        assert!(!root.name.is_empty() && !root.options().is_empty(), "{root:?}");
        assert_eq!(root.dev, fstat(File::open("/").unwrap()).unwrap().st_dev);
    }
}
