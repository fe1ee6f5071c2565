//! Compares a tree with a manifest: first what the lines name, then what there is besides.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Manifest,
    expected::Check,
    hash::{Hashing, Job, ids},
    large::Work,
};
use crate::{
    Error, Events, Hash,
    compare::{Comparison, run::Run},
    threads::for_reading,
    walk::{Task, walk},
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
    /// Where the manifest and its attributes were read from: in the tree, they are no extra files.
    pub own: Vec<PathBuf>,
}

/// Lines handed to a thread at a time.
pub(crate) const BATCH: usize = 64;

/// Compares a tree, or a single file, with a manifest. An error means that nothing was begun.
pub fn check(
    manifest: &Manifest,
    destination: &Path,
    options: &CheckOptions,
    events: &dyn Events,
) -> Result<Comparison, Error> {
    let check = Check::new(manifest, destination, options.hash)?;
    let own: Vec<&Path> = options.own.iter().map(PathBuf::as_path).collect();
    let own = ids(&own);
    let folder = check.folder().filter(|_| !options.ignore_extra);
    let tree = folder.map(|root| Task::Tree(Arc::clone(root)));
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
