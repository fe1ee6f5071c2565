//! Compares a tree with a manifest: first the files that the manifest names, then any extra files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Manifest,
    expected::ManifestCheck,
    hash::{HashJob, Hashing, ids},
    large::HashWork,
};
use crate::{
    Error, Events, Hash,
    compare::{Comparison, run::CompareRun},
    fs::walk::{WalkTask, walk},
    threads::for_reading,
};

/// Options of a comparison with a manifest.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The hash for lines that do not name a hash.
    pub hash: Option<Hash>,
    /// Do not report files that are missing from the manifest.
    pub ignore_extra: bool,
    /// Drop the page cache of each file first.
    pub cold: bool,
    /// Number of threads; 0 means one per core.
    pub jobs: usize,
    /// Paths of the manifest and its attributes file. They do not count as extra files.
    pub own: Vec<PathBuf>,
}

/// Number of lines handed to a thread at a time.
pub(crate) const BATCH: usize = 64;

/// Compares a tree, or a single file, with a manifest. If it returns an error, nothing was compared.
pub fn check(
    manifest: &Manifest,
    destination: &Path,
    options: &CheckOptions,
    events: &dyn Events,
) -> Result<Comparison, Error> {
    let check = ManifestCheck::new(manifest, destination, options.hash)?;
    let own: Vec<&Path> = options.own.iter().map(PathBuf::as_path).collect();
    let own = ids(&own);
    let folder = check.folder().filter(|_| !options.ignore_extra);
    let tree = folder.map(|root| WalkTask::Tree(Arc::clone(root)));
    let job = HashJob::Check(check);
    let hashing = Hashing { run: CompareRun::new(events), job, cold: options.cold, own };
    for (number, why) in &manifest.malformed {
        hashing.run.failed(Error::Usage(format!("line {number} of the manifest: {why}")));
    }
    let count = manifest.lines.len();
    let batches = (0..count).step_by(BATCH).map(|from| from..count.min(from + BATCH));
    // The queue is last in, first out. This order makes the first line the first task and the walk the last one.
    let lines = batches.rev().map(|lines| WalkTask::Work(HashWork::Lines(lines)));
    let hands = walk(&hashing, tree.into_iter().chain(lines), for_reading(options.jobs));
    Ok(hashing.run.conclude(hands.into_iter().map(|hand| hand.run).collect()))
}
