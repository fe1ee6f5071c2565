//! What is hashed, and what becomes of it.

use rustix::fs::{Stat, stat};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use super::expected::{Check, Failed};
use crate::{
    Hash, Listed,
    compare::{
        Finding, How,
        run::{self, BUFFER, Run},
    },
    hashing::{Digest, Hasher},
    identity::{Id, size},
    read::fill,
    walk::{Root, failed_call},
};

/// The files of these names, as far as they are there.
pub(crate) fn ids(own: &[&Path]) -> Vec<Id> {
    own.iter().filter_map(|own| Some(Id::of(&stat(*own).ok()?))).collect()
}

/// What the threads share.
pub(crate) struct Hashing<'h> {
    pub run: Run<'h>,
    pub job: Job<'h>,
    /// Let the page cache go first.
    pub cold: bool,
    /// The manifest itself and its attributes, which are no part of what it lists.
    pub own: Vec<Id>,
}

/// What the hashes are for.
pub(crate) enum Job<'h> {
    /// To be written.
    Make(Make<'h>),
    /// To be compared with those of a manifest.
    Check(Check<'h>),
}

/// Which files are hashed, and how.
pub(crate) struct Make<'h> {
    pub hash: Hash,
    /// Files of a folder, instead of those that a walk meets.
    pub listed: Option<(Root, &'h Listed)>,
}

/// What each thread keeps.
pub(crate) struct Hand {
    pub run: run::Hand,
    /// Names and hashes, to be written.
    pub made: Vec<(Vec<u8>, Digest)>,
}

/// A file that is to be hashed.
pub(crate) struct Subject {
    pub fd: OwnedFd,
    pub stat: Stat,
    pub what: What,
    pub path: PathBuf,
}

/// What the hash of a file is for.
pub(crate) enum What {
    /// The line of this name.
    Name(Vec<u8>),
    /// This line of the manifest, the first being 0.
    Line(usize),
}

impl Hashing<'_> {
    /// Hashes a file from its start to its end.
    pub fn hash_here(&self, hand: &mut Hand, subject: &Subject, hashes: &[Hash]) {
        let told = size(&subject.stat);
        match self.digests(hand, subject.fd.as_fd(), (hashes, told)) {
            Ok(Some((digests, bytes))) => self.hashed(hand, subject, &digests, bytes),
            // It was stopped.
            Ok(None) => {}
            Err((call, errno)) => {
                self.run.failed(failed_call(subject.path.clone(), call, errno));
            }
        }
    }

    /// The hashes that a file may have been given.
    pub fn hashes(&self, what: &What) -> Vec<Hash> {
        match (&self.job, what) {
            (Job::Make(make), _) => vec![make.hash],
            (Job::Check(check), What::Line(line)) => check.hashes(*line),
            (Job::Check(_), What::Name(_)) => Vec::new(),
        }
    }

    /// The digests of a whole file that says it has `told` bytes, and how many it has; `None` if
    /// it is to stop.
    fn digests(
        &self,
        hand: &mut Hand,
        fd: BorrowedFd<'_>,
        (hashes, told): (&[Hash], u64),
    ) -> Result<Option<(Vec<Digest>, u64)>, Failed> {
        let mut hashers: Vec<Hasher> = hashes.iter().map(|hash| Hasher::new(*hash)).collect();
        let mut at = 0;
        hand.run.make_room();
        loop {
            let buffer = &mut hand.run.buffers[0];
            let got = fill(fd, buffer, at).map_err(|errno| ("pread", errno))?;
            for hasher in &mut hashers {
                hasher.update(&buffer[..got]);
            }
            at += got as u64;
            self.run.advance(&mut hand.run, 0, got as u64);
            // A size of 0 often is no size at all (/proc).
            if got < BUFFER || (at == told && told > 0) {
                break;
            }
            if self.run.go_on().is_err() {
                return Ok(None);
            }
        }
        Ok(Some((hashers.into_iter().map(Hasher::finish).collect(), at)))
    }

    /// What becomes of a hash: it is to be written, or is that of the manifest or another.
    pub fn hashed(&self, hand: &mut Hand, subject: &Subject, digests: &[Digest], bytes: u64) {
        let is_same = match (&self.job, &subject.what) {
            (Job::Check(check), What::Line(line)) => {
                let is_same = check.agrees(*line, digests);
                if !is_same {
                    let how = How::Hash(check.number(*line));
                    let finding = Finding::Differs { path: &subject.path, how };
                    self.run.find(&mut hand.run, &finding);
                }
                is_same
            }
            (_, What::Name(name)) => {
                hand.made.extend(digests.first().map(|digest| (name.clone(), *digest)));
                true
            }
            (Job::Make(_), What::Line(_)) => false,
        };
        if is_same {
            hand.run.found.same += 1;
            hand.run.found.bytes += bytes;
        }
        self.run.advance(&mut hand.run, 1, 0);
    }
}
