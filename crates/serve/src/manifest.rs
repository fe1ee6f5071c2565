//! The list of a folder that a server gives and a client brings a tree by: JSON, one entry a line.
//!
//! Paths are below the folder, without a slash in front, and percent-encoded as in a URL: a name may be
//! any bytes, a line is printable ASCII, and a client appends the path to the folder's address as it is.
//! The first line is the folder itself, with an empty path. What is in a folder stands together, sorted by the
//! bytes of the names, and the folders come in the order of their lines: so a list is checked as it is read,
//! and nothing of it need be kept. The last line is [`Line::End`]: a list without it was cut short.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// What stands for itself in a path of a URL; everything else is written as `%XX`.
pub const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The `Content-Type` of a list.
pub const MEDIA_TYPE: &str = "application/jsonl";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// A regular file.
    File {
        /// Percent-encoded, below the folder.
        path: String,
        /// In bytes.
        size: u64,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
        /// As in the header of the same name: quoted, or `W/` and quoted.
        etag: String,
    },
    /// A folder.
    Folder {
        /// Percent-encoded, below the folder that is listed.
        path: String,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
        /// The server may not read it: what is in it is not listed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unread: bool,
    },
    /// A symbolic link.
    Link {
        /// Percent-encoded, below the folder.
        path: String,
        /// What it holds, percent-encoded.
        target: String,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
    },
    /// The list is whole.
    End {
        /// Lines before this one.
        entries: u64,
        /// Bytes in all its files.
        bytes: u64,
        /// Entries left out: unreadable, or of a kind that is not served.
        left_out: u64,
    },
}

/// What every entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last modified: whole seconds since 1970, UTC; before it negative.
    pub mtime: i64,
    /// And nanoseconds, below 10^9.
    pub nanos: u32,
}

/// As it stands in a line and in a URL.
pub fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), PLAIN).to_string()
}

/// The bytes of an encoded path or target. It may still be any path: absolute, or with `..` in it.
pub fn decoded(text: &str) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&percent_decode_str(text).collect::<Vec<u8>>()))
}
