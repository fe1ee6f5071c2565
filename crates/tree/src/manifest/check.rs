//! Compares a tree with a manifest: first what the lines name, then what there is besides.

use rustix::fs::{FileType, fstat, stat};
use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};
use thalweg_sys::Errno;

use super::{
    Digest, Manifest,
    run::{Hand, Hashing, Job, Subject, What, Work},
};
use crate::{
    Error, Events, Hash,
    compare::{Comparison, Finding, How, run::Run},
    identity::{Id, kind},
    names::{c_string, os_bytes},
    read::open,
    threads::for_reading,
    walk::{Crew, Root, Task, failed_call, walk},
};

/// What can be asked of a comparison with a manifest.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The hash of lines that do not tell.
    pub hash: Option<Hash>,
    /// Files that the manifest does not have are no finding.
    pub ignore_extra: bool,
    /// Let the page cache go first.
    pub cold: bool,
    /// Threads; 0 means as many as there are processors.
    pub jobs: usize,
    /// Where the manifest was read from: in the tree, it is not an extra file.
    pub own: Option<PathBuf>,
}

/// A manifest, while files are compared with it.
pub(crate) struct Check<'c> {
    manifest: &'c Manifest,
    names: HashMap<Vec<u8>, usize>,
    hash: Option<Hash>,
    /// Which of the two hashes of 64 digits it has, once a file has shown it: a place in
    /// [`ALIKE`] and one.
    shown: AtomicU8,
    place: Place,
}

/// Where the files are.
enum Place {
    /// In a folder.
    Folder(Arc<Root>, PathBuf),
    /// It is the only file there is.
    File(PathBuf),
}

/// Hashes that cannot be told apart by the number of their digits.
const ALIKE: [Hash; 2] = [Hash::Sha256, Hash::Blake3];
/// Lines handed to a thread at a time.
pub(crate) const BATCH: usize = 64;

/// Compares a tree, or a single file, with a manifest. An error means that nothing was begun.
pub fn check(
    manifest: &Manifest,
    destination: &Path,
    options: &CheckOptions,
    events: &dyn Events,
) -> Result<Comparison, Error> {
    let place = Place::open(destination, manifest)?;
    let own = options.own.as_ref().and_then(|own| stat(own).ok()).map(|stat| Id::of(&stat));
    let tree = match &place {
        Place::Folder(root, _) if !options.ignore_extra => Some(Task::Tree(Arc::clone(root))),
        _ => None,
    };
    let check = Check {
        manifest,
        names: manifest.names(),
        hash: options.hash,
        shown: AtomicU8::new(0),
        place,
    };
    let job = Job::Check(check);
    let hashing = Hashing { run: Run::new(events), job, cold: options.cold, own };
    for (number, why) in &manifest.malformed {
        hashing.run.failed(Error::Usage(format!("line {number} of the manifest: {why}")));
    }
    let count = manifest.lines.len();
    let batches = (0..count).step_by(BATCH).map(|from| from..count.min(from + BATCH));
    // Last in, first out: the first line is to be first, and the walk last.
    let lines = batches.rev().map(|lines| Task::Work(Work::Lines(lines)));
    let hands = walk(&hashing, tree.into_iter().chain(lines), for_reading(options.jobs));
    Ok(hashing.run.conclude(hands.into_iter().map(|hand| hand.run).collect()))
}

impl Place {
    fn open(destination: &Path, manifest: &Manifest) -> Result<Self, Error> {
        let failed = |errno| failed_call(destination.to_owned(), "stat", errno);
        let stat = stat(destination).map_err(failed)?;
        if kind(&stat) == FileType::Directory {
            let name = c_string(destination.as_os_str())?;
            let root = Root::open([None, Some(&name)])?;
            return Ok(Self::Folder(Arc::new(root), destination.to_owned()));
        }
        if manifest.lines.len() != 1 {
            let count = manifest.lines.len();
            let message = format!("one file, and a manifest of {count}: name the folder");
            return Err(Error::Usage(message));
        }
        Ok(Self::File(destination.to_owned()))
    }
}

impl Check<'_> {
    /// Whether a line names this path.
    pub fn has(&self, path: &[u8]) -> bool {
        self.names.contains_key(path)
    }

    /// The number of a line in its file.
    pub fn number(&self, line: usize) -> usize {
        self.manifest.lines[line].0
    }

    /// The hashes that a line may hold.
    pub fn hashes(&self, line: usize) -> Vec<Hash> {
        let (_, stated) = &self.manifest.lines[line];
        let shown = usize::from(self.shown.load(Ordering::Relaxed));
        let known = stated.hash.or(self.hash).or_else(|| ALIKE.get(shown.wrapping_sub(1)).copied());
        known.map_or_else(|| ALIKE.to_vec(), |hash| vec![hash])
    }

    /// Whether one of these, which are in the order of [`Self::hashes`], is what the line holds.
    pub fn agrees(&self, line: usize, digests: &[Digest]) -> bool {
        let stated = self.manifest.lines[line].1.digest;
        let found = digests.iter().position(|digest| *digest == stated);
        if let (Some(found), true) = (found, digests.len() == ALIKE.len()) {
            self.shown.store(found as u8 + 1, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Hashes the files that these lines name.
    pub fn lines<'h>(
        &self,
        hashing: &Hashing<'h>,
        crew: &Crew<'_, Hashing<'h>>,
        hand: &mut Hand,
        lines: Range<usize>,
    ) {
        for line in lines {
            if hashing.run.go_on().is_err() {
                return;
            }
            let path = self.path(line);
            match self.open(line) {
                Ok((fd, stat)) if kind(&stat) == FileType::RegularFile => {
                    let what = What::Line(line);
                    hashing.hash(crew, hand, Subject { fd, stat, what, path });
                }
                Ok((_, stat)) => {
                    let how = How::Kind(FileType::RegularFile, kind(&stat));
                    hashing.run.find(&mut hand.run, &Finding::Differs { path: &path, how });
                }
                Err((_, Errno::NOENT | Errno::NOTDIR)) => {
                    let kind = FileType::RegularFile;
                    hashing.run.find(&mut hand.run, &Finding::Missing { path: &path, kind });
                }
                Err((call, errno)) => hashing.run.failed(failed_call(path, call, errno)),
            }
        }
    }

    fn path(&self, line: usize) -> PathBuf {
        match &self.place {
            Place::Folder(_, path) => path.join(os_bytes(&self.manifest.lines[line].1.name)),
            Place::File(path) => path.clone(),
        }
    }

    fn open(
        &self,
        line: usize,
    ) -> Result<(std::os::fd::OwnedFd, rustix::fs::Stat), (&'static str, Errno)> {
        let fd = match &self.place {
            Place::Folder(root, _) => root.open_path(1, &self.manifest.lines[line].1.name),
            Place::File(path) => {
                let name = c_string(path.as_os_str()).map_err(|_| ("openat", Errno::INVAL))?;
                open(rustix::fs::CWD, &name, true)
            }
        };
        let fd = fd.map_err(|errno| ("openat", errno))?;
        let stat = fstat(&fd).map_err(|errno| ("fstat", errno))?;
        Ok((fd, stat))
    }
}
