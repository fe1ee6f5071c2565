//! Compares the entries with one name on both sides.

use rustix::fs::{AtFlags, FileType, Stat, fstatfs, readlinkat, statat};
use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Weak,
};
use thalweg_core::Cancelled;
use thalweg_sys::Errno;

use super::{
    CompareOptions, DifferenceKind, Finding,
    attributes::{names, xattrs_of},
    large::LargeComparison,
    links::HardLinkPairs,
    pair::FilePair,
    run::{CompareRun, CompareThread, SideFailure},
};
use crate::{
    AttributeDifferences, Error,
    fs::walk::{Kinds, Visit, VisitedEntry, WalkShared},
    holder::Holder,
    identity::{kind, size},
    pieces::Pieces,
    read::drop_cached,
};

/// A comparison of two trees.
pub(crate) struct ComparisonWalk<'c> {
    pub options: &'c CompareOptions,
    pub run: CompareRun<'c>,
    pub links: HardLinkPairs,
}

impl Visit for ComparisonWalk<'_> {
    type Hand = CompareThread;
    // A large file that several threads compare. The reference is weak, so that a queued task does not hold it open.
    type Work = Weak<LargeComparison>;

    fn hand(&self) -> CompareThread {
        CompareThread::new()
    }

    fn entry(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut CompareThread,
        at: &VisitedEntry<'_>,
        kinds: Kinds,
    ) {
        let done = match kinds {
            [Some(source), Some(sink)] => self.both(crew, hand, at, [source, sink]),
            [Some(kind), None] => {
                self.run.find(hand, &Finding::Missing { path: &at.path(1), kind });
                Ok(())
            }
            [None, Some(kind)] => {
                self.run.find(hand, &Finding::Extra { path: &at.path(1), kind });
                Ok(())
            }
            [None, None] => Ok(()),
        };
        if let Err((side, call, errno)) = done {
            self.run.failed(at.failed(side, call, errno));
        }
    }

    fn work(&self, _: &WalkShared<'_, Self>, hand: &mut CompareThread, large: Self::Work) {
        if let Some(large) = large.upgrade() {
            large.compare(&self.run, hand);
        }
    }

    fn failed(&self, error: Error) {
        self.run.failed(error);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.run.go_on()
    }
}

impl ComparisonWalk<'_> {
    fn both(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut CompareThread,
        at: &VisitedEntry<'_>,
        kinds: [FileType; 2],
    ) -> Result<(), SideFailure> {
        let has_bytes = |kind| {
            kind == FileType::RegularFile
                || (kind == FileType::BlockDevice && at.is_named_by_caller())
        };
        if kinds.into_iter().all(has_bytes) {
            return self.files(crew, hand, at);
        }
        if kinds[0] != kinds[1] {
            self.differs(hand, at, DifferenceKind::Kind(kinds[0], kinds[1]));
            return Ok(());
        }
        self.nodes(hand, at, kinds[0])
    }

    /// Compares two directories, symbolic links or special files.
    fn nodes(
        &self,
        hand: &mut CompareThread,
        at: &VisitedEntry<'_>,
        kind: FileType,
    ) -> Result<(), SideFailure> {
        let look = |side: usize| {
            let dir = at.dir(side).ok_or((side, "openat", Errno::NOENT))?;
            let stat = statat(dir, at.name(side), AtFlags::SYMLINK_NOFOLLOW);
            stat.map_err(|errno| (side, "newfstatat", errno))
        };
        let stats = [look(0)?, look(1)?];
        let is_same = match kind {
            FileType::Symlink => {
                let read = |side: usize| {
                    let dir = at.dir(side).ok_or((side, "openat", Errno::NOENT))?;
                    readlinkat(dir, at.name(side), Vec::new())
                        .map_err(|errno| (side, "readlinkat", errno))
                };
                read(0)? == read(1)?
            }
            FileType::BlockDevice | FileType::CharacterDevice => {
                stats[0].st_rdev == stats[1].st_rdev
            }
            _ => true,
        };
        if !is_same {
            let how = if kind == FileType::Symlink {
                DifferenceKind::Target
            } else {
                DifferenceKind::Device
            };
            self.differs(hand, at, how);
        } else if kind == FileType::Directory {
            hand.found.dirs += 1;
        } else {
            hand.found.others += 1;
        }
        if self.options.attributes {
            let dirs = [0, 1].map(|side| at.dir(side));
            if let [Some(source), Some(sink)] = dirs {
                let of = |dir, side| Holder::Entry { dir, name: at.name(side), follows: false };
                self.attributes(hand, at, &stats, [of(source, 0), of(sink, 1)], sink)?;
            }
        }
        Ok(())
    }

    /// Compares two files with contents.
    fn files(
        &self,
        crew: &WalkShared<'_, Self>,
        hand: &mut CompareThread,
        at: &VisitedEntry<'_>,
    ) -> Result<(), SideFailure> {
        let pair = FilePair::open(at)?;
        if self.options.cold {
            for (side, fd) in pair.fds.iter().enumerate() {
                // The file should be read from the device. If the kernel keeps its pages, it is read from memory.
                drop_cached(fd.as_fd()).map_err(|errno| (side, "fdatasync", errno))?;
            }
        }
        if self.options.attributes {
            self.attributes(hand, at, &pair.stats, pair.ends().map(Holder::Fd), pair.ends()[1])?;
        }
        let sizes = pair.stats.each_ref().map(size);
        let are_files = pair.stats.iter().all(|stat| kind(stat) == FileType::RegularFile);
        if are_files && sizes[0] != sizes[1] {
            self.differs(hand, at, DifferenceKind::Size(sizes[0], sizes[1]));
            self.run.pass(hand, sizes[0]);
            return Ok(());
        }
        if Pieces::suit(pair.len) {
            LargeComparison::share(pair, at, crew, &self.run, hand);
            return Ok(());
        }
        // A reported length of 0 may be wrong, so the file is then read to its end.
        let end = if pair.len == 0 { u64::MAX } else { pair.len };
        match self.run.first_difference(hand, pair.ends(), 0..end)? {
            Some(at_byte) => {
                self.differs(hand, at, DifferenceKind::Byte(at_byte));
                self.run.pass(hand, pair.len.saturating_sub(at_byte));
            }
            None => self.run.same(hand, pair.len),
        }
        Ok(())
    }

    fn differs(&self, hand: &mut CompareThread, at: &VisitedEntry<'_>, how: DifferenceKind) {
        self.run.find(hand, &Finding::Differs { path: &at.path(1), how });
    }

    /// Compares the attributes. `on`: a descriptor on the file system of the copy.
    fn attributes(
        &self,
        hand: &mut CompareThread,
        at: &VisitedEntry<'_>,
        stats: &[Stat; 2],
        [ours, theirs]: [Holder<'_>; 2],
        on: BorrowedFd<'_>,
    ) -> Result<(), SideFailure> {
        let mut differs = AttributeDifferences::between(&stats[0], &stats[1], || fstatfs(on));
        differs.xattrs = xattrs_of(&ours, 0)? != xattrs_of(&theirs, 1)?;
        let differing = names(differs, !self.links.agree(stats));
        if !differing.is_empty() {
            self.differs(hand, at, DifferenceKind::Attributes(differing));
        }
        Ok(())
    }
}
