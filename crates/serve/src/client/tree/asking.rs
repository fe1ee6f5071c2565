//! Requests for many files on one connection: several are asked for before the first has come.

use std::{collections::VecDeque, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use super::{files::Wanted, job::Job};
use crate::{
    client::{Extra, request, resume::Asked},
    manifest::encoded,
};

/// Files asked for and not there yet.
pub const MOST: usize = 64;
/// Bytes of requests under way: what two sockets hold even if their other ends do not read. A client that
/// waits to ask and a server that waits to answer would wait for ever.
const MOST_REQUESTED: usize = 16 << 10;

/// What is under way on a connection, by one kind of request.
pub struct Asking {
    /// The request for a file, before and behind its path.
    before: String,
    behind: String,
    /// In how many bytes each was asked for.
    under_way: VecDeque<usize>,
}

impl Asking {
    /// For files themselves.
    pub fn for_files(job: &Job<'_>) -> Self {
        Self::by(&text(job, &job.options.extra))
    }

    /// For what the server says of them, their hashes among that.
    pub fn for_hashes(job: &Job<'_>) -> Self {
        let extra = Extra { wants_digest: true, ..job.options.extra.clone() };
        Self::by(&text(job, &extra).replacen("GET", "HEAD", 1))
    }

    fn by(text: &str) -> Self {
        let (before, behind) = text.split_once(" HTTP/1.1").unwrap_or((text, ""));
        let (before, behind) = (before.to_owned(), format!(" HTTP/1.1{behind}"));
        Self { before, behind, under_way: VecDeque::new() }
    }

    /// The requests for those of `all` that are not under way, as far as more may be.
    pub fn next<'w>(&mut self, all: impl Iterator<Item = &'w Wanted>) -> Vec<u8> {
        let mut text = Vec::new();
        let mut bytes: usize = self.under_way.iter().sum();
        for wanted in all.skip(self.under_way.len()) {
            let path = encoded(Path::new(OsStr::from_bytes(&wanted.path)));
            let length = self.before.len() + path.len() + self.behind.len();
            if bytes > 0 && bytes + length > MOST_REQUESTED {
                break;
            }
            for part in [&self.before, &path, &self.behind] {
                text.extend_from_slice(part.as_bytes());
            }
            bytes += length;
            self.under_way.push_back(length);
        }
        text
    }

    /// The first of them is answered.
    pub fn answered(&mut self) {
        self.under_way.pop_front();
    }

    /// What is not answered will not be: the connection is gone.
    pub fn forget(&mut self) {
        self.under_way.clear();
    }
}

fn text(job: &Job<'_>, extra: &Extra) -> String {
    request::text(job.base, &Asked::ALL, extra, (job.is_own, job.options.proxies.of(job.base)))
}
