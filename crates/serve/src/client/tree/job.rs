//! State shared by the connections of a tree fetch.

use std::{os::fd::BorrowedFd, sync::Mutex};

use thalweg_tree::foreign::WholeSync;

use super::{
    account::Account,
    files::{InstallPolicy, Wanted},
    list::Lines,
};
use crate::client::{
    Error, Options, Target,
    connect::Connection,
    deadline::NetDeadline,
    fetch::Listed,
    head::{Framing, Head},
};

/// State shared by all connections.
pub struct Job<'a> {
    pub base: &'a Target,
    pub is_own: bool,
    pub options: &'a Options,
    pub install: InstallPolicy,
    pub root: BorrowedFd<'a>,
    pub lines: Mutex<Lines<'a>>,
    pub account: &'a Account<'a>,
    /// The file system of the directory, if one syncfs(2) call syncs it.
    pub whole: Option<&'a WholeSync>,
}

impl Job<'_> {
    /// Returns the existing connection, or opens a new one to the server.
    pub fn connect(
        &self,
        there: Option<Connection>,
        deadline: &NetDeadline<'_>,
    ) -> Result<Connection, Error> {
        let (trust, proxies) = (&self.options.trust, &self.options.proxies);
        let open = || Connection::open(self.base, (trust, proxies), deadline);
        // This server has already sent the list.
        there.map_or_else(|| open().map_err(Error::of_known_server), Ok)
    }
}

/// Checks that a response is about the listed file.
pub fn check(head: &Head, wanted: &Wanted) -> Result<(), Error> {
    if let Some(encoding) = head.get("content-encoding") {
        return Err(Error::broken(format!("it comes encoded as {encoding}")));
    }
    let size = match head.framing()? {
        Framing::Length(size) => Some(size),
        _ => None,
    };
    Listed::check(head, size, (wanted.size, &wanted.etag))
}
