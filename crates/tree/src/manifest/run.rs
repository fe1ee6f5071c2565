//! Hashes files with several threads: the files that a walk finds, or the files that a list names.

use rustix::fs::{FileType, fstat};
use std::{ops::Range, os::fd::AsFd};
use thalweg_core::Cancelled;
use thalweg_sys::Errno;

use super::{
    expected::{HashFailure, ManifestCheck},
    hash::{FileToHash, HashJob, HashThread, Hashing, LineTarget, Make},
    large::{HashWork, LargeHash},
};
use crate::{
    Error, Hash, Refusal,
    compare::{DifferenceKind, Finding, run},
    error::at_path,
    fs::walk::{Kinds, Visit, VisitedEntry, WalkShared},
    identity::{Id, kind, size},
    pieces::Pieces,
    read::{drop_cached, open},
};

impl Visit for Hashing<'_> {
    type Hand = HashThread;
    type Work = HashWork;

    fn hand(&self) -> HashThread {
        HashThread { run: run::CompareThread::new(), made: Vec::new() }
    }

    fn entry(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut HashThread,
        at: &VisitedEntry<'_>,
        kinds: Kinds,
    ) {
        let met = match (&self.job, kinds) {
            (_, [_, Some(FileType::Directory)]) => {
                hand.run.found.dirs += 1;
                Ok(())
            }
            (HashJob::Make(_), [_, Some(FileType::RegularFile)]) => self.list(crew, hand, at),
            (HashJob::Check(check), [_, Some(FileType::RegularFile)]) => {
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

    fn work(&self, crew: &WalkShared<'_, Self>, hand: &mut HashThread, work: HashWork) {
        match (work, &self.job) {
            (HashWork::Large(large), _) => {
                if let Some(large) = large.upgrade() {
                    large.hash(self, hand);
                }
            }
            (HashWork::Lines(lines), HashJob::Check(check)) => {
                self.check_lines(crew, hand, check, lines);
            }
            (HashWork::Lines(names), HashJob::Make(make)) => {
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
    /// Hashes a file that a walk found, for a new line of the manifest.
    fn list(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut HashThread,
        at: &VisitedEntry<'_>,
    ) -> Result<(), HashFailure> {
        let Some(dir) = at.dir(1) else { return Ok(()) };
        let fd = open(dir, at.name(1), at.is_named_by_caller()).map_err(|e| ("openat", e))?;
        let stat = fstat(&fd).map_err(|errno| ("fstat", errno))?;
        if self.own.contains(&Id::of(&stat)) {
            return Ok(());
        }
        let what = LineTarget::Name(at.below_root());
        self.hash(crew, hand, FileToHash { fd, stat, what, path: at.path(1) });
        Ok(())
    }

    /// Hashes a file of the list, for a new line of the manifest.
    fn listed(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut HashThread,
        make: &Make<'_>,
        index: usize,
    ) {
        let Some((root, list)) = &make.listed else { return };
        if self.run.go_on().is_err() {
            return;
        }
        let name = &list.names[index];
        let opened = root.open_path(1, name).map_err(|errno| ("openat", errno));
        let opened = opened.and_then(|fd| Ok((fstat(&fd).map_err(|errno| ("fstat", errno))?, fd)));
        match opened {
            Ok((stat, _)) if self.own.contains(&Id::of(&stat)) => {
                let (path, reason) = (list.path(index), Refusal::ManifestOverCopy);
                self.run.failed(Error::Refused { path, reason });
            }
            Ok((stat, fd)) if kind(&stat) == FileType::RegularFile => {
                let (what, path) = (LineTarget::Name(name.clone()), list.path(index));
                self.hash(crew, hand, FileToHash { fd, stat, what, path });
            }
            // The caller may have copied to a device, which gets no line in a manifest.
            Ok(_) => hand.run.found.not_named += 1,
            Err((call, errno)) => self.run.failed(at_path(&list.path(index), call)(errno)),
        }
    }

    /// Reports a file that a walk found but the manifest does not name.
    fn expect_listed(
        &self,
        hand: &mut HashThread,
        check: &ManifestCheck<'_>,
        at: &VisitedEntry<'_>,
    ) -> Result<(), HashFailure> {
        if check.has(&at.below_root()) {
            return Ok(());
        }
        let Some(dir) = at.dir(1) else { return Ok(()) };
        let stat = rustix::fs::statat(dir, at.name(1), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| ("newfstatat", errno))?;
        if !self.own.contains(&Id::of(&stat)) {
            let kind = kind(&stat);
            self.run.find(&mut hand.run, &Finding::Extra { path: &at.path(1), kind });
        }
        Ok(())
    }

    /// Hashes a file on this thread, or together with idle threads.
    pub fn hash(&self, crew: &WalkShared<'_, Self>, hand: &mut HashThread, subject: FileToHash) {
        // If the cached pages cannot be dropped, the file is read from memory.
        let dropped = if self.cold { drop_cached(subject.fd.as_fd()).map(drop) } else { Ok(()) };
        if let Err(errno) = dropped {
            return self.run.failed(at_path(&subject.path, "fdatasync")(errno));
        }
        let hashes = self.hashes(&subject.what);
        if hashes == [Hash::Blake3] && Pieces::suit(size(&subject.stat)) {
            return LargeHash::share(subject, crew, self, hand);
        }
        self.hash_here(hand, &subject, &hashes);
    }

    /// Hashes the files of these lines.
    fn check_lines(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut HashThread,
        check: &ManifestCheck<'_>,
        lines: Range<usize>,
    ) {
        for line in lines {
            if self.run.go_on().is_err() {
                return;
            }
            let path = check.path(line);
            match check.open(line) {
                Ok((fd, stat)) if kind(&stat) == FileType::RegularFile => {
                    let what = LineTarget::Line(line);
                    self.hash(crew, hand, FileToHash { fd, stat, what, path });
                }
                Ok((_, stat)) => {
                    let how = DifferenceKind::Kind(FileType::RegularFile, kind(&stat));
                    self.run.find(&mut hand.run, &Finding::Differs { path: &path, how });
                }
                Err((_, Errno::NOENT | Errno::NOTDIR)) => {
                    let kind = FileType::RegularFile;
                    self.run.find(&mut hand.run, &Finding::Missing { path: &path, kind });
                }
                Err((call, errno)) => self.run.failed(at_path(&path, call)(errno)),
            }
        }
    }
}
