//! The list of a directory tree: a server produces it, and a client downloads the tree with it. The format is binary
//! and specified in `docs/reference/formats.md`.
//!
//! The list begins with [`MAGIC`] and the directory itself. Groups follow, each with the entries of one directory,
//! sorted by the bytes of their names. The groups are in the order in which their directories are listed. An entry has
//! only its name, so no entry can be outside the directory. A client verifies the list during the download and need not
//! store it.

mod check;
mod fields;
mod parse;
mod request;
mod special;
mod write;
mod xattrs;

use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{FileType, Stat};
use thalweg_tree::install::EntryXattrs;

pub use check::ListCheck;
pub use fields::{FieldError, ListFields, put};
pub use parse::{LONGEST_RECORD, RecordParser};
pub use request::{LONGEST_QUERY, ListRequest};
pub use special::SpecialFile;
pub use write::RecordWriter;
pub use xattrs::{LONGEST_XATTRS, has_room, put_xattrs, take_xattrs};

/// Characters that are not encoded in a URL path; all others are written as `%XX`.
pub const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The `Content-Type` of a list.
pub const MEDIA_TYPE: &str = "application/vnd.thalweg.list";

/// The first bytes of a list.
pub const MAGIC: &[u8; 8] = b"thwglist";

/// The format of lists, and of the requests that a client sends over a byte stream.
pub const FORMAT: u8 = 4;

/// The header in which a server on a byte stream announces its version and [`FORMAT`]. Lower case, because the names in
/// parsed heads are lower case.
pub const PEER_HEADER: &str = "thalweg";

/// The header with the percent-encoded record of a single served file, in place of a list.
pub const ENTRY_HEADER: &str = "thalweg-entry";

/// The header in which a server on a byte stream identifies the file system of the listed directory.
pub const SOURCE_HEADER: &str = "thalweg-source";

/// Linux file systems do not allow longer names.
const LONGEST_NAME: usize = 255;

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRecord {
    Entry(ManifestEntry),
    /// The following entries are in the next directory.
    Group(GroupFilter),
    /// The end of a complete list.
    End(ListTotals),
}

/// The filter file of the directory of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupFilter {
    /// The client did not request filter files.
    NotRequested,
    /// The server cannot read the file.
    Unreadable,
    /// The text of the file; empty if the directory has none.
    Text(Vec<u8>),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Empty for the listed directory itself.
    pub name: Vec<u8>,
    pub kind: ManifestKind,
    /// Identity of a symbolic link or special file that has several names. The identity of a file is in [`FileTag`].
    pub shared_node: Option<InodeId>,
    pub meta: Meta,
    /// Extended attributes and ACLs, if the client requests them. Symbolic links have none.
    pub xattrs: EntryXattrs,
}

/// Device and inode number. Entries with equal identities are names (hard links) of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeId {
    pub device: u64,
    pub inode: u64,
}

impl InodeId {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestKind {
    File(FileTag),
    Directory(DirectoryContents),
    /// A symbolic link and its target.
    Link(CString),
    /// Listed only if the client requests special files.
    Special(SpecialFile),
}

/// Presence of a directory's entries in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryContents {
    Listed,
    /// The server has no permission to read the directory.
    Unreadable,
    /// The directory is on another file system, and the client requested the entries of one file system only.
    Elsewhere,
}

impl ManifestEntry {
    /// Returns the identity of the inode, if the entry is not a directory and has several names.
    pub fn shared_inode(&self) -> Option<InodeId> {
        match &self.kind {
            ManifestKind::File(file) => {
                file.linked_on.map(|device| InodeId { device, inode: file.inode })
            }
            ManifestKind::Link(_) | ManifestKind::Special(_) => self.shared_node,
            ManifestKind::Directory(_) => None,
        }
    }
}

impl ManifestKind {
    /// Returns the type as the file system names it.
    pub fn file_type(&self) -> FileType {
        match self {
            Self::File(_) => FileType::RegularFile,
            Self::Directory(_) => FileType::Directory,
            Self::Link(_) => FileType::Symlink,
            Self::Special(special) => special.kind,
        }
    }
}

/// Size and version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTag {
    /// In bytes.
    pub size: u64,
    pub inode: u64,
    /// Time of the last change (`st_ctime`): seconds since 1970, and nanoseconds.
    pub changed: (i64, u32),
    /// The device, if the file has several names.
    pub linked_on: Option<u64>,
    /// `true` if the file has holes: it occupies less than its size.
    pub is_sparse: bool,
}

/// Metadata of every entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, in whole seconds since 1970 (UTC). Negative before 1970.
    pub mtime: i64,
    /// Nanoseconds of the modification time, below 10^9.
    pub nanos: u32,
}

/// The totals at the end of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListTotals {
    /// Number of entries, including the directory itself.
    pub entries: u64,
    /// Total size of all files, in bytes.
    pub bytes: u64,
    /// Number of omitted entries: unreadable, or of a type that is not served.
    pub left_out: u64,
    /// Number of entries that the filters of the client exclude. The entries below them are not counted.
    pub excluded: u64,
}

impl FileTag {
    /// Returns the strong entity tag of the file, as in the `ETag` header. `mtime`, `nanos`: its modification time.
    pub fn etag(&self, mtime: i64, nanos: u32) -> String {
        let modified = in_nanos(mtime, nanos);
        let changed = in_nanos(self.changed.0, self.changed.1);
        format!("\"{:x}-{:x}-{modified:x}-{changed:x}\"", self.inode, self.size)
    }
}

fn in_nanos(seconds: i64, nanos: u32) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

/// Returns the percent-encoded form of a path, as used in a URL.
pub fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), PLAIN).to_string()
}
