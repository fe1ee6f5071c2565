//! Hashes files, and records or compares the results.

use rustix::fs::{Stat, stat};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_sys::io;

use super::expected::{HashFailure, ManifestCheck};
use crate::{
    Hash, ListedFiles,
    compare::{
        DifferenceKind, Finding,
        run::{self, BUFFER, CompareRun},
    },
    error::at_path,
    fs::walk::WalkRoot,
    hashing::{Digest, Hasher},
    identity::{Id, size},
};

/// Returns the identities of those files that exist.
pub(crate) fn ids(own: &[&Path]) -> Vec<Id> {
    own.iter().filter_map(|own| Some(Id::of(&stat(*own).ok()?))).collect()
}

/// State shared by the threads.
pub(crate) struct Hashing<'h> {
    pub run: CompareRun<'h>,
    pub job: HashJob<'h>,
    /// `true` if the page cache of each file is dropped before the file is read.
    pub cold: bool,
    /// The identities of the manifest and its attributes file, which are not listed in the manifest.
    pub own: Vec<Id>,
}

/// The purpose of the hashes.
pub(crate) enum HashJob<'h> {
    /// Write them to a new manifest.
    Make(Make<'h>),
    /// Compare them with a manifest.
    Check(ManifestCheck<'h>),
}

/// The files to hash, and the hash.
pub(crate) struct Make<'h> {
    pub hash: Hash,
    /// The files of a directory to hash, instead of the files that a walk finds.
    pub listed: Option<(WalkRoot, &'h ListedFiles)>,
}

/// Per-thread state.
pub(crate) struct HashThread {
    pub run: run::CompareThread,
    /// Names and hashes for the new manifest.
    pub made: Vec<(Vec<u8>, Digest)>,
}

/// A file to hash.
pub(crate) struct FileToHash {
    pub fd: OwnedFd,
    pub stat: Stat,
    pub what: LineTarget,
    pub path: PathBuf,
}

/// The manifest line that a file belongs to.
pub(crate) enum LineTarget {
    /// A new line with this name.
    Name(Vec<u8>),
    /// This line of the manifest, counted from 0.
    Line(usize),
}

impl Hashing<'_> {
    /// Hashes a whole file on this thread.
    pub fn hash_here(&self, hand: &mut HashThread, subject: &FileToHash, hashes: &[Hash]) {
        let reported = size(&subject.stat);
        match self.digests(hand, subject.fd.as_fd(), hashes, reported) {
            Ok(Some((digests, bytes))) => self.hashed(hand, subject, &digests, bytes),
            // The operation was cancelled.
            Ok(None) => {}
            Err((call, errno)) => self.run.failed(at_path(&subject.path, call)(errno)),
        }
    }

    /// Returns the hashes to compute for a file.
    pub fn hashes(&self, what: &LineTarget) -> Vec<Hash> {
        match (&self.job, what) {
            (HashJob::Make(make), _) => vec![make.hash],
            (HashJob::Check(check), LineTarget::Line(line)) => check.hashes(*line),
            (HashJob::Check(_), LineTarget::Name(_)) => Vec::new(),
        }
    }

    /// Returns the digests of a whole file and its actual size. `reported`: the size that `fstat` reported, which may
    /// differ. Returns `None` if the operation is cancelled.
    fn digests(
        &self,
        hand: &mut HashThread,
        fd: BorrowedFd<'_>,
        hashes: &[Hash],
        reported: u64,
    ) -> Result<Option<(Vec<Digest>, u64)>, HashFailure> {
        let mut hashers: Vec<Hasher> = hashes.iter().map(|hash| Hasher::new(*hash)).collect();
        let mut at = 0;
        hand.run.make_room();
        loop {
            let buffer = &mut hand.run.buffers[0];
            let got = io::pread_full(fd, buffer, at).map_err(|errno| ("pread", errno))?;
            for hasher in &mut hashers {
                hasher.update(&buffer[..got]);
            }
            at += got as u64;
            self.run.advance(&mut hand.run, 0, got as u64);
            // At a reported size of 0, which is often wrong (/proc), the file is read to its end.
            if got < BUFFER || (at == reported && reported > 0) {
                break;
            }
            if self.run.go_on().is_err() {
                return Ok(None);
            }
        }
        Ok(Some((hashers.into_iter().map(Hasher::finish).collect(), at)))
    }

    /// Adds the digest to the new manifest, or compares it with the existing one and reports a difference.
    pub fn hashed(
        &self,
        hand: &mut HashThread,
        subject: &FileToHash,
        digests: &[Digest],
        bytes: u64,
    ) {
        let is_same = match (&self.job, &subject.what) {
            (HashJob::Check(check), LineTarget::Line(line)) => {
                let is_same = check.agrees(*line, digests);
                if !is_same {
                    let how = DifferenceKind::Hash(check.number(*line));
                    let finding = Finding::Differs { path: &subject.path, how };
                    self.run.find(&mut hand.run, &finding);
                }
                is_same
            }
            (_, LineTarget::Name(name)) => {
                hand.made.extend(digests.first().map(|digest| (name.clone(), *digest)));
                true
            }
            (HashJob::Make(_), LineTarget::Line(_)) => false,
        };
        if is_same {
            hand.run.found.same += 1;
            hand.run.found.bytes += bytes;
        }
        self.run.advance(&mut hand.run, 1, 0);
    }
}
