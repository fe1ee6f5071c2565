//! Pipelines requests for many files on one connection: several are sent before the first response arrives.

use std::{collections::VecDeque, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use super::{files::WantedFile, job::TreeJob};
use crate::{
    client::{Extra, request, resume::FileRequest},
    manifest::encoded,
};

/// Largest number of files that are requested and not received yet.
pub const MOST: usize = 64;
/// Largest number of request bytes in flight. The socket buffers hold this many even if the server does not read. With
/// more, client and server could both block in a send, and each would wait forever for the other to read.
const MOST_REQUESTED: usize = 16 << 10;

/// Requests in flight on a connection, all of one kind.
pub struct Asking {
    /// The text of a request before and after its path.
    before: String,
    behind: String,
    /// Length of each request in flight, in bytes.
    under_way: VecDeque<usize>,
}

impl Asking {
    /// Creates the queue for requests of files.
    pub fn for_files(job: &TreeJob<'_>) -> Self {
        Self::by(&text(job, &job.options.extra))
    }

    /// Creates the queue for HEAD requests. Their responses hold the digest.
    pub fn for_hashes(job: &TreeJob<'_>) -> Self {
        let extra = Extra { wants_digest: true, ..job.options.extra.clone() };
        Self::by(&text(job, &extra).replacen("GET", "HEAD", 1))
    }

    fn by(text: &str) -> Self {
        let (before, behind) = text.split_once(" HTTP/1.1").unwrap_or((text, ""));
        let (before, behind) = (before.to_owned(), format!(" HTTP/1.1{behind}"));
        Self { before, behind, under_way: VecDeque::new() }
    }

    /// Returns the text of the next requests, for files in `all` that are not requested yet, as far as the limits
    /// allow.
    pub fn next<'w>(&mut self, all: impl Iterator<Item = &'w WantedFile>) -> Vec<u8> {
        let mut text = Vec::new();
        let mut bytes: usize = self.under_way.iter().sum();
        // Requests nothing while more than half of a limit is in flight. Over ssh, each send is a packet to encrypt and
        // decrypt, so requests are sent in groups.
        if bytes > MOST_REQUESTED / 2 || self.under_way.len() > MOST / 2 {
            return text;
        }
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

    /// Returns `true` if no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Records that the first request is answered.
    pub fn answered(&mut self) {
        self.under_way.pop_front();
    }

    /// Forgets the requests in flight, because the connection is gone.
    pub fn forget(&mut self) {
        self.under_way.clear();
    }
}

fn text(job: &TreeJob<'_>, extra: &Extra) -> String {
    let proxy = job.options.proxies.of(job.base);
    request::text(job.base, &FileRequest::ALL, extra, job.is_own, proxy)
}
