//! Hashes files by several threads: those that a walk meets, or those that lines name.

use rustix::fs::{FileType, Stat, fstat};
use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::Weak,
};
use thalweg_core::Cancelled;
use thalweg_sys::Errno;

use super::{check::Check, large::Large};
use crate::{
    Error, Hash, Listed,
    compare::{
        Finding, How,
        run::{self, BUFFER, Run},
    },
    hashing::{Digest, Hasher},
    identity::{Id, kind, size},
    pieces::Pieces,
    read::{fill, forget_cached, open},
    walk::{At, Crew, Kinds, Root, Visit, failed_call},
};

/// What the threads share.
pub(crate) struct Hashing<'h> {
    pub run: Run<'h>,
    pub job: Job<'h>,
    /// Let the page cache go first.
    pub cold: bool,
    /// The manifest itself, which is no part of what it lists.
    pub own: Option<Id>,
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

/// A piece of work.
pub(crate) enum Work {
    /// Some lines of the manifest, or names of the list.
    Lines(Range<usize>),
    /// A large file, as far as it is left; what waits keeps no file open.
    Large(Weak<Large>),
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

/// A call that failed.
pub(crate) type Failed = (&'static str, Errno);

impl Visit for Hashing<'_> {
    type Hand = Hand;
    type Work = Work;

    fn hand(&self) -> Hand {
        Hand { run: run::Hand::new(), made: Vec::new() }
    }

    fn entry(&self, crew: &Crew<'_, Self>, hand: &mut Hand, at: &At<'_>, kinds: Kinds) {
        let met = match (&self.job, kinds) {
            (_, [_, Some(FileType::Directory)]) => {
                hand.run.found.dirs += 1;
                Ok(())
            }
            (Job::Make(_), [_, Some(FileType::RegularFile)]) => self.list(crew, hand, at),
            (Job::Check(check), [_, Some(FileType::RegularFile)]) => {
                self.expect_listed(hand, check, at)
            }
            _ => {
                hand.run.found.not_named += 1;
                Ok(())
            }
        };
        if let Err((call, errno)) = met {
            self.run.failed(at.failed(1, call, errno));
        }
    }

    fn work(&self, crew: &Crew<'_, Self>, hand: &mut Hand, work: Work) {
        match (work, &self.job) {
            (Work::Large(large), _) => {
                if let Some(large) = large.upgrade() {
                    large.hash(self, hand);
                }
            }
            (Work::Lines(lines), Job::Check(check)) => check.lines(self, crew, hand, lines),
            (Work::Lines(names), Job::Make(make)) => {
                names.for_each(|index| self.listed(crew, hand, make, index));
            }
        }
    }

    fn failed(&self, error: Error) {
        self.run.failed(error);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.run.go_on()
    }
}

impl Hashing<'_> {
    /// Hashes a file that a walk met, for its line.
    fn list(&self, crew: &Crew<'_, Self>, hand: &mut Hand, at: &At<'_>) -> Result<(), Failed> {
        let Some(dir) = at.dir(1) else { return Ok(()) };
        let fd = open(dir, at.name(1), at.is_named_by_caller()).map_err(|e| ("openat", e))?;
        let stat = fstat(&fd).map_err(|errno| ("fstat", errno))?;
        if self.own == Some(Id::of(&stat)) {
            return Ok(());
        }
        let what = What::Name(at.below_root());
        self.hash(crew, hand, Subject { fd, stat, what, path: at.path(1) });
        Ok(())
    }

    /// Hashes a file of the list, for its line.
    fn listed(&self, crew: &Crew<'_, Self>, hand: &mut Hand, make: &Make<'_>, index: usize) {
        let Some((root, list)) = &make.listed else { return };
        if self.run.go_on().is_err() {
            return;
        }
        let name = &list.names[index];
        let opened = root.open_path(1, name).map_err(|errno| ("openat", errno));
        let opened = opened.and_then(|fd| Ok((fstat(&fd).map_err(|errno| ("fstat", errno))?, fd)));
        match opened {
            Ok((stat, fd)) if kind(&stat) == FileType::RegularFile => {
                let (what, path) = (What::Name(name.clone()), list.path(index));
                self.hash(crew, hand, Subject { fd, stat, what, path });
            }
            // A copy may have been written into a device.
            Ok(_) => hand.run.found.not_named += 1,
            Err((call, errno)) => self.run.failed(failed_call(list.path(index), call, errno)),
        }
    }

    /// A file that a walk met is to be in the manifest.
    fn expect_listed(&self, hand: &mut Hand, check: &Check<'_>, at: &At<'_>) -> Result<(), Failed> {
        if check.has(&at.below_root()) {
            return Ok(());
        }
        let Some(dir) = at.dir(1) else { return Ok(()) };
        let stat = rustix::fs::statat(dir, at.name(1), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| ("newfstatat", errno))?;
        if self.own != Some(Id::of(&stat)) {
            let kind = kind(&stat);
            self.run.find(&mut hand.run, &Finding::Extra { path: &at.path(1), kind });
        }
        Ok(())
    }

    /// Hashes a file, here or by all threads.
    pub fn hash(&self, crew: &Crew<'_, Self>, hand: &mut Hand, subject: Subject) {
        if self.cold {
            forget_cached(&subject.fd);
        }
        let hashes = self.hashes(&subject.what);
        if hashes == [Hash::Blake3] && Pieces::suit(size(&subject.stat)) {
            return Large::share(subject, crew, (self, hand));
        }
        self.hash_here(hand, &subject, &hashes);
    }

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
    fn hashes(&self, what: &What) -> Vec<Hash> {
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
