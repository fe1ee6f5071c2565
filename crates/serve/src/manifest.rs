//! The manifest of a directory tree: a server produces it and a client downloads the tree by it. JSON, one entry per line.
//!
//! Paths are relative to the directory, without a leading slash, and percent-encoded as in a URL. Names may contain any bytes,
//! but a line is printable ASCII, and a client appends the encoded path to the directory's URL. The first line is the directory
//! itself, with an empty path. The entries of a directory are consecutive and sorted by the bytes of their names. Directories are
//! listed in the order of their own lines. A client can therefore verify the list during the download and need not store it. The
//! last line is [`ManifestLine::End`]; a list without it is incomplete.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// Characters that are not encoded in a URL path; all others are written as `%XX`.
pub const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The `Content-Type` of a manifest.
pub const MEDIA_TYPE: &str = "application/jsonl";

/// The format of manifests, and of the requests that a client sends over a byte stream.
pub const FORMAT: u32 = 1;

/// The header in which a server on a byte stream announces its version and [`FORMAT`]. Lower case, as heads are parsed.
pub const PEER_HEADER: &str = "thalweg";

/// The header with the line of a single served file, in place of a manifest.
pub const ENTRY_HEADER: &str = "thalweg-entry";

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ManifestLine {
    /// A regular file.
    File {
        /// Percent-encoded, relative to the directory.
        path: String,
        /// In bytes.
        size: u64,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
        /// Formatted as in the `ETag` header: quoted, with `W/` in front if it is weak.
        etag: String,
    },
    /// A directory.
    #[serde(rename = "folder")]
    Directory {
        /// Percent-encoded, relative to the listed directory.
        path: String,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
        /// `true` if the server has no permission to read it, so that its entries are not listed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unread: bool,
    },
    /// A symbolic link.
    Link {
        /// Percent-encoded, relative to the directory.
        path: String,
        /// The target of the link, percent-encoded.
        target: String,
        /// Mode, owner and time.
        #[serde(flatten)]
        meta: Meta,
    },
    /// The end of a complete manifest.
    End {
        /// Number of lines before this one.
        entries: u64,
        /// Total size of all files, in bytes.
        bytes: u64,
        /// Number of omitted entries: unreadable, or of a type that is not served.
        left_out: u64,
    },
}

/// Metadata of every entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Returns the percent-encoded form, as used in a line and in a URL.
pub fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), PLAIN).to_string()
}

/// Decodes a path or a target. The result may be any path: absolute, or with `..` in it.
pub fn decoded(text: &str) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&percent_decode_str(text).collect::<Vec<u8>>()))
}
