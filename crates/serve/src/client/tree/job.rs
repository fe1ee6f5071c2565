//! What the connections of a tree's fetch share.

use std::{os::fd::BorrowedFd, sync::Mutex};

use thalweg_tree::foreign::WholeSync;

use super::{
    account::Account,
    files::{Manner, Wanted},
    list::Lines,
};
use crate::client::{
    Error, Options, Target,
    connect::Connection,
    fetch::Listed,
    head::{Framing, Head},
    patience::Patience,
};

/// What all of them share.
pub struct Job<'a> {
    pub base: &'a Target,
    pub is_own: bool,
    pub options: &'a Options,
    pub manner: Manner,
    pub root: BorrowedFd<'a>,
    pub lines: Mutex<Lines<'a>>,
    pub account: &'a Account<'a>,
    /// The file system of the folder, if one call syncs it.
    pub whole: Option<&'a WholeSync>,
}

impl Job<'_> {
    /// The connection that there is, or a new one to the server.
    pub fn connect(
        &self,
        there: Option<Connection>,
        patience: &Patience<'_>,
    ) -> Result<Connection, Error> {
        let (trust, proxies) = (&self.options.trust, &self.options.proxies);
        let open = || Connection::open(self.base, (trust, proxies), patience);
        // This server has given the list.
        there.map_or_else(|| open().map_err(Error::of_known_server), Ok)
    }
}

/// Whether an answer is the file that the list speaks of.
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
