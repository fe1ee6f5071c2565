//! The arm (a compared variant) of a tree: its copy with a given number of threads.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_core::{Cancelled, Unfit, shown};
use thalweg_tree::{CopyOptions, Events, Halt};

use crate::StopCheck;
use crate::{
    arms::content::first_difference_of_files,
    sample::{Sample, SampleMeter},
    schedule::{Arm, SampleFailure},
    scratch::remove,
};

/// The location of a sample, and that of its copies.
pub(super) struct SampleTree {
    pub sample: PathBuf,
    pub copy: PathBuf,
    pub bytes: u64,
    pub files: u64,
}

/// Copies a directory to a path that does not exist. A parameter so that tests can replace it.
pub(super) type TreeCopier =
    dyn Fn(&Path, &Path, &CopyOptions, &StopCheck<'_>) -> Result<(), SampleFailure>;

pub(super) fn copy_tree(
    from: &Path,
    to: &Path,
    options: &CopyOptions,
    stop: &StopCheck<'_>,
) -> Result<(), SampleFailure> {
    let unfit = |reason: String| SampleFailure::Unfit(Unfit::because(reason));
    let copied = thalweg_tree::copy(&[from.to_owned()], to, options, &StopListener(stop));
    let report = copied.map_err(|error| unfit(error.to_string()))?;
    match (report.halted, report.errors.first()) {
        (Some(Halt::Cancelled), _) => Err(SampleFailure::Cancelled),
        (_, Some(error)) => Err(unfit(error.to_string())),
        (Some(Halt::Full), None) => Err(unfit("the destination is full".to_owned())),
        (None, None) => Ok(()),
    }
}

struct StopListener<'s>(&'s StopCheck<'s>);

impl Events for StopListener<'_> {
    fn go_on(&self) -> Result<(), Cancelled> {
        (self.0)()
    }
}

/// Our copy with a given number of threads.
pub(super) struct TreeArm<'p> {
    options: CopyOptions,
    place: &'p SampleTree,
    copy: &'p TreeCopier,
    stop: &'p StopCheck<'p>,
}

impl<'p> TreeArm<'p> {
    pub fn new(
        options: CopyOptions,
        place: &'p SampleTree,
        copy: &'p TreeCopier,
        stop: &'p StopCheck<'p>,
    ) -> Self {
        Self { options, place, copy, stop }
    }
}

impl Arm for TreeArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, SampleFailure> {
        remove(&self.place.copy);
        let meter = SampleMeter::start();
        (self.copy)(&self.place.sample, &self.place.copy, &self.options, self.stop)?;
        Ok(meter.stop(self.place.bytes))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.place.check()
    }
}

impl SampleTree {
    /// Checks that the copy contains every file of the sample with equal bytes, and no other file.
    pub fn check(&self) -> Result<(), Unfit> {
        let wrong = |path: &Path, e: io::Error| Unfit::because(format!("{}: {e}", shown(path)));
        for path in files_below(&self.sample).map_err(|e| wrong(&self.sample, e))? {
            let inside = path.strip_prefix(&self.sample).unwrap_or(&path);
            let copy = self.copy.join(inside);
            let differs = first_difference_of_files(&path, &copy).map_err(|e| wrong(&copy, e))?;
            if differs.is_some() {
                let text = format!("{} was copied incorrectly", shown(inside));
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
