//! Creates a manifest.

use rustix::fs::{FileType, stat};
use std::{ffi::CString, path::Path, sync::Arc};

use super::{
    check::BATCH,
    hash::{HashJob, Hashing, Make, ids},
    large::HashWork,
    write_line,
};
use crate::{
    Error, Events, Hash, ListedFiles,
    compare::{Comparison, run::CompareRun},
    error::at_path,
    fs::walk::{WalkRoot, WalkTask, walk},
    identity::kind,
    names::{c_string, cut},
    threads::for_reading,
};

/// A new manifest and its report.
#[derive(Debug)]
pub struct NewManifest {
    /// The lines, sorted by the bytes of the names.
    pub text: Vec<u8>,
    /// The number of files and bytes read, and the errors.
    pub account: Comparison,
}

/// Lists all files of a tree by their path in it, or one file by its name. `own` contains the paths of the manifest and
/// its attributes file, which are not listed. `jobs` is the number of threads; 0 means one per core. An error means
/// that nothing was read.
pub fn make(
    path: &Path,
    hash: Hash,
    jobs: usize,
    own: &[&Path],
    events: &dyn Events,
) -> Result<NewManifest, Error> {
    let own = ids(own);
    let job = HashJob::Make(Make { hash, listed: None });
    let hashing = Hashing { run: CompareRun::new(events), job, cold: false, own };
    Ok(gather(hashing, hash, [task(path)?], jobs))
}

/// Reads the files of a copy again, and lists them. If one of them has the path `own` of the manifest, the report
/// contains an error.
pub fn make_of(
    listed: &ListedFiles,
    hash: Hash,
    jobs: usize,
    own: &Path,
    events: &dyn Events,
) -> Result<NewManifest, Error> {
    let own = ids(&[own]);
    let folder = c_string(listed.folder.as_os_str())?;
    let root = WalkRoot::open([None, Some(&folder)])?;
    let job = HashJob::Make(Make { hash, listed: Some((root, listed)) });
    let hashing = Hashing { run: CompareRun::new(events), job, cold: false, own };
    let count = listed.names.len();
    let batches = (0..count).step_by(BATCH).map(|from| from..count.min(from + BATCH));
    let tasks = batches.map(|names| WalkTask::Work(HashWork::Lines(names)));
    Ok(gather(hashing, hash, tasks, jobs))
}

fn gather(
    hashing: Hashing<'_>,
    hash: Hash,
    tasks: impl IntoIterator<Item = WalkTask<HashWork>>,
    jobs: usize,
) -> NewManifest {
    let mut hands = walk(&hashing, tasks, for_reading(jobs));
    let mut lines: Vec<_> = hands.iter_mut().flat_map(|hand| hand.made.drain(..)).collect();
    lines.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    // If a later source replaced the copy of an earlier one, the list contains that name twice.
    lines.dedup_by(|(a, _), (b, _)| a == b);
    let mut text = Vec::new();
    for (name, digest) in lines {
        write_line(&mut text, hash, &digest, &name);
    }
    let hands = hands.into_iter().map(|hand| hand.run);
    NewManifest { text, account: hashing.run.conclude(hands.collect()) }
}

pub(super) fn task<W>(path: &Path) -> Result<WalkTask<W>, Error> {
    let whole = c_string(path.as_os_str())?;
    let stat = stat(path).map_err(at_path(path, "stat"))?;
    if kind(&stat) == FileType::Directory {
        return Ok(WalkTask::Tree(Arc::new(WalkRoot::open([None, Some(&whole)])?)));
    }
    let name: CString = c_string(cut(path).1)?;
    Ok(WalkTask::Named([name, whole], [None, Some(kind(&stat))]))
}
