//! An entry of a listing.

use serde::Serialize;

/// An entry of a listing.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// For people: what is no UTF-8 is replaced.
    pub name: String,
    /// As in the folder's address, with a slash behind a folder.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Last modified, in seconds since 1970.
    pub mtime: i64,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Folder,
    File,
}
