//! Makes a manifest.

use rustix::fs::{FileType, stat};
use std::{ffi::CString, path::Path, sync::Arc};

use super::{
    run::{Hashing, Job},
    write_line,
};
use crate::{
    Error, Events, Hash,
    compare::{Comparison, run::Run},
    identity::{Id, kind},
    sources::{c_string, cut},
    threads::or_processors,
    walk::{Root, Task, failed_call, walk},
};

/// A manifest, and what there is to say of it.
#[derive(Debug)]
pub struct Made {
    /// Its lines, in the order of the bytes of the names.
    pub text: Vec<u8>,
    /// How much was read, and what could not be.
    pub account: Comparison,
}

/// Lists all files of a tree by their path in it, or one file by its name. `own` is where the manifest
/// will be: if it lies in the tree, it is not listed. `jobs` is the number of threads; 0 means as many as there
/// are processors. An error means that nothing was begun.
pub fn make(
    path: &Path,
    hash: Hash,
    (jobs, own): (usize, Option<&Path>),
    events: &dyn Events,
) -> Result<Made, Error> {
    let own = own.and_then(|own| stat(own).ok()).map(|stat| Id::of(&stat));
    let hashing = Hashing { run: Run::new(events), job: Job::Make(hash), cold: false, own };
    let task = task(path)?;
    let mut hands = walk(&hashing, [task], or_processors(jobs));
    let mut lines: Vec<_> = hands.iter_mut().flat_map(|hand| hand.made.drain(..)).collect();
    lines.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut text = Vec::new();
    for (name, digest) in lines {
        write_line(&mut text, hash, &digest, &name);
    }
    let hands = hands.into_iter().map(|hand| hand.run);
    Ok(Made { text, account: hashing.run.conclude(hands.collect()) })
}

fn task<W>(path: &Path) -> Result<Task<W>, Error> {
    let whole = c_string(path.as_os_str())?;
    let stat = stat(path).map_err(|errno| failed_call(path.to_owned(), "stat", errno))?;
    if kind(&stat) == FileType::Directory {
        return Ok(Task::Tree(Arc::new(Root::open([None, Some(&whole)])?)));
    }
    let name: CString = c_string(cut(path).1)?;
    Ok(Task::Named([name, whole], [None, Some(kind(&stat))]))
}
