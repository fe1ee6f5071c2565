//! An entry of a directory listing.

use serde::Serialize;

/// An entry of a directory listing.
#[derive(Debug, Serialize)]
pub struct ListingEntry {
    /// For display: bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Encoded relative to the directory's URL, with a trailing slash if the entry is a directory.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: ListingKind,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Modification time, in seconds since 1970.
    pub mtime: i64,
}

/// Types of entries that a client can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ListingKind {
    #[serde(rename = "folder")]
    Directory,
    File,
}
