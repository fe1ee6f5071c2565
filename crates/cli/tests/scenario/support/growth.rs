//! Random trees. Their description is plain data, so that a failing tree can be shrunk and printed.

use proptest::{collection::vec, prelude::*, sample::Index};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::{ffi::OsStringExt, fs::symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::bytes;

/// An entry of a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    parent: Index,
    name: Vec<u8>,
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    xattrs: Vec<(Attribute, Vec<u8>)>,
    acl: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum Kind {
    Folder,
    File(u64),
    /// The length, and the pieces of data between holes.
    Sparse(u64, Vec<(Index, u64)>),
    Symlink(Vec<u8>),
    HardLink(Index),
    Fifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    User,
    UserOdd,
    Trusted,
    Capability,
}

/// Generates up to 40 entries.
pub fn entries() -> impl Strategy<Value = Vec<Entry>> {
    vec(entry(), 1..40)
}

fn entry() -> impl Strategy<Value = Entry> {
    // Includes times before 1970 and after 2038, which some formats of 32 bits cannot store.
    let mtime = (-1_000_000_000_i64..8_000_000_000, 0_i64..1_000_000_000);
    let owner = prop_oneof![3 => Just((0, 0)), 1 => (0_u32..70_000, 0_u32..70_000)];
    let mode = prop_oneof![3 => Just(0o644), 2 => 0_u32..0o10000];
    let acl = prop_oneof![4 => Just(None), 1 => Just(Some("u:1234:rw,g:4321:x,m:rwx"))];
    let parts = (any::<Index>(), name(), kind(), mode, owner, mtime, vec(xattr(), 0..3), acl);
    parts.prop_map(|(parent, name, kind, mode, owner, mtime, xattrs, acl)| Entry {
        parent,
        name,
        kind,
        mode,
        owner,
        mtime,
        xattrs,
        acl,
    })
}

/// Generates names of any permitted bytes, most often of bytes that programs tend to misread.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => b'a'..=b'z',
        1 => prop::sample::select(b" -\n\t\\\"'*?$.~\x01\x7f\x80\xc3\xff".to_vec()),
        1 => (1_u8..=255).prop_filter("no slash", |b| *b != b'/'),
    ];
    prop_oneof![5 => vec(byte.clone(), 1..20), 1 => vec(byte, 200..230)]
}

fn kind() -> impl Strategy<Value = Kind> {
    let sizes =
        prop_oneof![Just(0), Just(1), 4090_u64..4100, 0_u64..20_000, 200_000_u64..1_500_000];
    let islands = vec((any::<Index>(), 1_u64..70_000), 0..4);
    prop_oneof![
        4 => Just(Kind::Folder),
        6 => sizes.prop_map(Kind::File),
        2 => (1_u64..3_000_000, islands).prop_map(|(len, islands)| Kind::Sparse(len, islands)),
        2 => name().prop_map(Kind::Symlink),
        2 => any::<Index>().prop_map(Kind::HardLink),
        1 => Just(Kind::Fifo),
    ]
}

fn xattr() -> impl Strategy<Value = (Attribute, Vec<u8>)> {
    use Attribute::{Capability, Trusted, User, UserOdd};
    (prop::sample::select(vec![User, UserOdd, Trusted, Capability]), vec(any::<u8>(), 0..200))
}

/// Makes the tree in an empty directory. Without root, omits what an ordinary user cannot do.
pub fn grow(root: &Path, entries: &[Entry], as_root: bool) {
    let mut folders = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    let mut grown: Vec<(&Entry, PathBuf)> = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        let path = entry.parent.get(&folders).join(entry.file_name(n));
        match &entry.kind {
            Kind::Folder => {
                fs::create_dir(&path).unwrap();
                folders.push(path.clone());
            }
            Kind::File(len) => bytes::write(&path, n as u64, *len),
            Kind::Sparse(len, islands) => {
                File::create(&path).unwrap().set_len(*len).unwrap();
                for (at, size) in islands {
                    let at = at.index(*len as usize) as u64;
                    bytes::write_at(&path, n as u64, at, (*size).min(len - at) as usize);
                }
            }
            Kind::Symlink(target) => symlink(OsString::from_vec(target.clone()), &path).unwrap(),
            Kind::HardLink(to) if files.is_empty() => {
                bytes::write(&path, n as u64, to.index(9) as u64);
            }
            Kind::HardLink(to) => {
                fs::hard_link(to.get(&files), &path).unwrap();
                continue;
            }
            Kind::Fifo => {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
            }
        }
        if matches!(entry.kind, Kind::File(_) | Kind::Sparse(..)) {
            files.push(path.clone());
        }
        grown.push((entry, path));
    }
    // Sets attributes from the leaves up, because a new entry changes the times of its directory, and its mode may
    // forbid new entries.
    for (entry, path) in grown.iter().rev() {
        entry.dress(path, as_root);
    }
}

impl Entry {
    fn file_name(&self, n: usize) -> OsString {
        // A number makes each name unique. The names of FIFOs end with `fifo`, so that tools can exclude them.
        let kind = if matches!(self.kind, Kind::Fifo) { "fifo" } else { "" };
        let mut name = self.name.clone();
        name.extend(format!("{n}{kind}").bytes());
        OsString::from_vec(name)
    }

    fn dress(&self, path: &Path, as_root: bool) {
        let is_link = matches!(self.kind, Kind::Symlink(_));
        if as_root {
            let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(rustix::fs::CWD, path, Some(uid), Some(gid), flags).unwrap();
        }
        if !is_link {
            // Without root, the owner must be able to read the entry.
            let mode = if as_root { self.mode } else { self.mode | 0o700 };
            rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
            if let Some(acl) = self.acl {
                // If setfacl is not installed, or the file system has no ACLs, the entry has no ACL.
                let mut set = Command::new("setfacl");
                let birth = if matches!(self.kind, Kind::Folder) { ",d:u:77:rx" } else { "" };
                drop(set.args(["-m", &format!("{acl}{birth}"), "--"]).arg(path).output());
            }
            if !matches!(self.kind, Kind::Fifo) {
                self.xattrs.iter().for_each(|(name, value)| name.set(path, value, as_root));
            }
        }
        let mtime = Timespec { tv_sec: self.mtime.0, tv_nsec: self.mtime.1 };
        let times = Timestamps { last_access: mtime, last_modification: mtime };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    }
}

impl Attribute {
    fn set(self, path: &Path, value: &[u8], as_root: bool) {
        // Version 2 of the format of capabilities(7): cap_net_raw, permitted and effective.
        const CAPABILITY: [u8; 20] =
            [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (name, value) = match self {
            Self::User => ("user.thalweg", value),
            Self::UserOdd => ("user.odd \u{fc}name", value),
            Self::Trusted => ("trusted.thalweg", value),
            Self::Capability if path.is_dir() => return,
            Self::Capability => ("security.capability", &CAPABILITY[..]),
        };
        if as_root || matches!(self, Self::User | Self::UserOdd) {
            rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
        }
    }
}
