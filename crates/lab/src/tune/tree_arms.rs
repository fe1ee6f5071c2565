//! The arms of a tree: its copy with so many threads, and `cp -r`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_core::{Profile, Request, Unfit};

use super::arms::first_difference;
use crate::{
    peer::{Cp, remove},
    rounds::{Arm, Failure},
    sample::{Meter, Sample},
};

/// Where a sample lies, and where its copies go.
pub(super) struct Place {
    pub sample: PathBuf,
    pub copy: PathBuf,
    pub bytes: u64,
    pub files: u64,
}

/// How a tree is copied.
#[derive(Clone, Copy)]
pub(super) struct Threads<'t> {
    pub count: usize,
    pub profile: &'t Profile,
    pub request: &'t Request,
}

/// One copy of a folder to a name that does not exist.
pub(super) type CopyTree<'c> = dyn Fn(&Path, &Path, Threads<'_>) -> Result<(), Failure> + 'c;

/// Our copy with so many threads.
pub(super) struct TreeArm<'p> {
    name: String,
    how: Threads<'p>,
    place: &'p Place,
    copy: &'p CopyTree<'p>,
}

impl<'p> TreeArm<'p> {
    pub fn new(how: Threads<'p>, place: &'p Place, copy: &'p CopyTree<'p>) -> Self {
        let name = format!("{} {}", how.count, if how.count == 1 { "thread" } else { "threads" });
        Self { name, how, place, copy }
    }
}

impl Arm for TreeArm<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        remove(&self.place.copy);
        let meter = Meter::start();
        (self.copy)(&self.place.sample, &self.place.copy, self.how)?;
        Ok(meter.stop(self.place.bytes))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.place.check()
    }
}

/// The system's `cp`; its start counts.
pub(super) struct CpArm<'p> {
    pub cp: &'p Cp,
    pub place: &'p Place,
}

impl Arm for CpArm<'_> {
    fn name(&self) -> &str {
        &self.cp.command
    }

    fn sample(&mut self) -> Result<Sample, Failure> {
        remove(&self.place.copy);
        let meter = Meter::start();
        let done = self.cp.run(&self.place.sample, &self.place.copy);
        let sample = meter.stop(self.place.bytes);
        done.map(|()| sample).map_err(|reason| Failure::Unfit(Unfit::because(reason)))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.place.check()
    }
}

impl Place {
    /// Whether the copy holds every file of the sample, with its bytes, and no other.
    fn check(&self) -> Result<(), Unfit> {
        let wrong = |path: &Path, e: io::Error| Unfit::because(format!("{}: {e}", path.display()));
        for path in files_below(&self.sample).map_err(|e| wrong(&self.sample, e))? {
            let inside = path.strip_prefix(&self.sample).unwrap_or(&path);
            let copy = self.copy.join(inside);
            let len = path.metadata().map_err(|e| wrong(&path, e))?.len();
            let copied = copy.metadata().map_err(|e| wrong(&copy, e))?.len();
            let differs = first_difference(&path, &copy, len).map_err(|e| wrong(&copy, e))?;
            if len != copied || differs.is_some() {
                let text = format!("{} was copied wrongly", inside.display());
                return Err(Unfit::because(text));
            }
        }
        let copied = files_below(&self.copy).map_err(|e| wrong(&self.copy, e))?.len() as u64;
        if copied == self.files {
            Ok(())
        } else {
            Err(Unfit::because(format!("copied {copied} files of {}", self.files)))
        }
    }
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    Ok(files)
}
