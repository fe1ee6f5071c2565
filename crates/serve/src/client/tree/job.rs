//! State shared by the connections of a tree fetch.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use thalweg_tree::install::WholeSync;

use super::{
    account::FetchCounters,
    files::{InstallPolicy, WantedFile},
    renames::TreeRenames,
    store::StoredEntries,
};
use crate::client::{
    Expected, FetchError, FetchOptions, FetchUrl,
    connect::FetchConnection,
    deadline::NetDeadline,
    head::{Framing, ResponseHead},
};

/// State shared by all connections.
pub struct TreeJob<'a> {
    pub base: &'a FetchUrl,
    pub is_own: bool,
    pub options: &'a FetchOptions,
    pub install: InstallPolicy<'a>,
    pub root: BorrowedFd<'a>,
    /// An earlier snapshot. Its files may be linked.
    pub reference: Option<BorrowedFd<'a>>,
    pub renames: Option<&'a TreeRenames<'a>>,
    pub entries: Mutex<StoredEntries<'a>>,
    pub account: &'a FetchCounters<'a>,
    /// The file system of the tree, if one syncfs(2) call can sync it.
    pub whole: Option<&'a WholeSync>,
    /// `true` if the server has sent the digest of a file.
    pub has_digests: AtomicBool,
}

impl TreeJob<'_> {
    /// Returns the file's digest from a response. `None`: the server sends digests, but not of this file, which may be
    /// changing.
    pub fn digest(&self, head: &ResponseHead) -> Result<Option<Expected>, FetchError> {
        let digest = Expected::of_head(head);
        if digest.is_some() {
            self.has_digests.store(true, Ordering::Relaxed);
        } else if !self.has_digests.load(Ordering::Relaxed) {
            let why = format!("'{}' sends no hashes; start the server with --hash", self.base);
            return Err(FetchError::Unsupported(why));
        }
        Ok(digest)
    }

    /// Returns the existing connection, or opens a new one to the server.
    pub fn connect(
        &self,
        there: Option<FetchConnection>,
        deadline: &NetDeadline<'_>,
    ) -> Result<FetchConnection, FetchError> {
        let open = || FetchConnection::open(self.base, self.options, deadline);
        // This server has already sent the list, so a failed connection is a temporary error.
        there.map_or_else(|| open().map_err(FetchError::of_known_server), Ok)
    }
}

/// Checks that a response is about the listed file.
pub fn check_listed(head: &ResponseHead, wanted: &WantedFile) -> Result<(), FetchError> {
    if let Some(encoding) = head.get("content-encoding") {
        return Err(FetchError::broken(format!(
            "Content-Encoding is {encoding}, which was not requested"
        )));
    }
    let size = match head.framing()? {
        Framing::Length(size) => Some(size),
        _ => None,
    };
    wanted.listed().check(head, size)
}
