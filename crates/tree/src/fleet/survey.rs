//! Walks the source once and writes the plan at the same time. Only a few directories and one line per task stay in
//! memory.
//!
//! Entries that need no task are left out: directories, symbolic links, special files, files with several names, and
//! files with very long paths. The finisher copies everything that belongs to no task.

use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::{
    convert::Infallible,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_core::{Cancelled, atomic_file::name::is_reserved};
use thalweg_sys::Errno;

use super::{
    member::TASK_FILES,
    plan::{FleetTask, LONGEST_FOLDER, PlanEntry, PlanWriter, SourceStamp},
};
use crate::{
    CopyOptions, Error, Events, When,
    copy::contents::sparse::{next_extent, seems_sparse},
    fs::walk::{Kinds, Visit, VisitedEntry, WalkRoot, WalkShared, WalkTask as Walk, walk},
    identity::{kind, size},
    names::c_string,
    read::open,
    threads::{for_reading, locked},
};

/// State shared by the threads that walk a source and write its plan.
pub(crate) struct PlanSurvey<'s> {
    options: &'s CopyOptions,
    events: &'s dyn Events,
    task_bytes: u64,
    // The device number of the source. With `one_file_system` the survey stays on this device.
    device: u64,
    writing: Mutex<Writing>,
}

struct Writing {
    plan: PlanWriter,
    // Number of large files found so far.
    files: u64,
    trouble: Option<Trouble>,
}

/// The reason why a plan cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Writing failed.
    Write(Errno),
    /// There are more tasks than a worker can hold.
    TooMany,
    /// The caller cancelled the survey.
    Cancelled,
}

/// The files that a thread has found and that are not in a task yet.
#[derive(Default)]
pub(crate) struct SurveyThread {
    files: Vec<PlanEntry>,
    bytes: u64,
}

/// Writes the plan of a source into an empty file. `device`: the device number of the source.
pub(crate) fn survey(
    source: &Path,
    device: u64,
    options: &CopyOptions,
    task_bytes: u64,
    events: &dyn Events,
    plan: PlanWriter,
) -> Result<Result<OwnedFd, Trouble>, Error> {
    let root = WalkRoot::open([Some(&c_string(source.as_os_str())?), None])?;
    let writing = Mutex::new(Writing { plan, files: 0, trouble: None });
    let survey = PlanSurvey { options, events, task_bytes, device, writing };
    let hands = walk(&survey, [Walk::Tree(Arc::new(root))], for_reading(options.jobs));
    let mut rest = SurveyThread::default();
    for entry in hands.into_iter().flat_map(|hand| hand.files) {
        survey.add(&mut rest, entry);
    }
    survey.close(&mut rest);
    let Writing { plan, trouble, .. } =
        survey.writing.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(trouble) = trouble {
        return Ok(Err(trouble));
    }
    if events.go_on().is_err() {
        return Ok(Err(Trouble::Cancelled));
    }
    Ok(plan.end().map_err(Trouble::Write))
}

impl Visit for PlanSurvey<'_> {
    type Hand = SurveyThread;
    type Work = Infallible;

    fn hand(&self) -> SurveyThread {
        SurveyThread::default()
    }

    fn entry(
        &self,
        _: &WalkShared<'_, Self>,
        hand: &mut SurveyThread,
        at: &VisitedEntry<'_>,
        kinds: Kinds,
    ) {
        if kinds[0] != Some(FileType::RegularFile) {
            return;
        }
        let (Some(dir), name) = (at.dir(0), at.name(0)) else { return };
        // The error is not reported here, because the finisher meets and reports it.
        let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let is_elsewhere = self.options.one_file_system && stat.st_dev != self.device;
        let has_names = self.options.preserve.links && stat.st_nlink > 1;
        if kind(&stat) != FileType::RegularFile || is_elsewhere || has_names {
            return;
        }
        let Some(entry) = entry(at, name, &stat, hand.files.last()) else { return };
        let splits = self.options.sparse != When::Always && self.options.reflink != When::Always;
        if splits && size(&stat) > self.task_bytes {
            let source = seems_sparse(&stat).then(|| open(dir, name, false).ok()).flatten();
            self.split(&entry, source.as_ref());
        } else {
            self.add(hand, entry);
        }
    }

    fn failed(&self, _: Error) {}

    fn go_on(&self) -> Result<(), Cancelled> {
        self.events.go_on()?;
        if locked(&self.writing).trouble.is_some() { Err(Cancelled) } else { Ok(()) }
    }
}

impl PlanSurvey<'_> {
    /// Collects a file. Writes a task when enough files are collected.
    fn add(&self, hand: &mut SurveyThread, entry: PlanEntry) {
        hand.bytes = hand.bytes.saturating_add(entry.seen.size);
        hand.files.push(entry);
        if hand.bytes >= self.task_bytes || hand.files.len() >= TASK_FILES as usize {
            self.close(hand);
        }
    }

    fn close(&self, hand: &mut SurveyThread) {
        let SurveyThread { files, .. } = std::mem::take(hand);
        if !files.is_empty() {
            locked(&self.writing).add(&FleetTask::Files(files));
        }
    }

    /// Splits a large file into tasks. If holes are preserved, ranges without data get no task. `source` is the open
    /// file, if it seems to have holes.
    fn split(&self, entry: &PlanEntry, source: Option<&OwnedFd>) {
        let len = entry.seen.size;
        let keeps_holes = self.options.sparse == When::Auto;
        // The last range also gets the rest, which is shorter than a task.
        let count = (len / self.task_bytes).max(1);
        let mut writing = locked(&self.writing);
        let file = writing.files;
        writing.files += 1;
        let mut n = 0;
        while n < count {
            let from = n * self.task_bytes;
            let to = if n + 1 == count { len } else { from + self.task_bytes };
            if let Some(source) = source.filter(|_| keeps_holes) {
                match next_extent(source.as_fd(), from, len) {
                    Ok(None) => break,
                    Ok(Some((data, _))) if data >= to => {
                        n = (data / self.task_bytes).min(count - 1);
                        continue;
                    }
                    // If the call failed, the worker that copies the range reports the error.
                    Ok(Some(_)) | Err(_) => {}
                }
            }
            writing.add(&FleetTask::Stretch { file, entry: entry.clone(), range: from..to });
            n += 1;
        }
    }
}

impl Writing {
    fn add(&mut self, task: &FleetTask) {
        match self.plan.add(task) {
            Ok(true) => {}
            Ok(false) => self.trouble = Some(Trouble::TooMany),
            Err(errno) => self.trouble = Some(Trouble::Write(errno)),
        }
    }
}

/// Returns a file for a task; `None` if its path is too long or contains a reserved name.
fn entry(
    at: &VisitedEntry<'_>,
    name: &CStr,
    stat: &Stat,
    before: Option<&PlanEntry>,
) -> Option<PlanEntry> {
    let mut path = at.below_root();
    let cut = path.len().checked_sub(name.count_bytes())?;
    path.truncate(cut.saturating_sub(1));
    let is_ours = |name: &[u8]| CString::new(name).is_ok_and(|name| is_reserved(&name));
    if path.len() > LONGEST_FOLDER || is_reserved(name) {
        return None;
    }
    let folder = match before {
        Some(before) if *before.folder == *path => Arc::clone(&before.folder),
        _ if path.split(|byte| *byte == b'/').any(is_ours) => return None,
        _ => Arc::from(path),
    };
    Some(PlanEntry { folder, name: name.to_owned(), seen: SourceStamp::of(stat) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::plan::{FleetPlan, Surveyed};
    use std::{collections::BTreeMap, fs, os::unix::fs::FileExt};

    fn planned(source: &Path, options: &CopyOptions, task_bytes: u64) -> Vec<FleetTask> {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let top = rustix::fs::stat(source).unwrap();
        let (device, writer) = (top.st_dev, PlanWriter::new(file, 1, Surveyed::of(&top)));
        let plan = survey(source, device, options, task_bytes, &(), writer).unwrap().unwrap();
        let plan = FleetPlan::read(plan).unwrap();
        (0..plan.index.len()).map(|n| plan.task(n).unwrap()).collect()
    }

    #[test]
    fn every_file_is_in_one_task_and_large_ones_are_cut_without_their_holes() {
        let here = tempfile::tempdir().unwrap();
        let at = |name: &str| here.path().join(name);
        fs::create_dir_all(at("sub/deep")).unwrap();
        for n in 0..2500 {
            fs::write(at(&format!("sub/{n}")), "x").unwrap();
        }
        fs::write(at("sub/deep/.f.thalweg-part"), "ours").unwrap();
        fs::write(at("one"), "names").unwrap();
        fs::hard_link(at("one"), at("two")).unwrap();
        fs::write(at("large"), vec![1; (300 << 10) + 5]).unwrap();
        let sparse = fs::File::create(at("sparse")).unwrap();
        sparse.write_all_at(&[1; 10], 700 << 10).unwrap();
        sparse.set_len(2 << 20).unwrap();
        let options = CopyOptions { jobs: 3, ..CopyOptions::archive() };
        let mut files = BTreeMap::new();
        let mut stretches = Vec::new();
        for task in planned(here.path(), &options, 100 << 10) {
            match task {
                FleetTask::Files(some) => {
                    assert!(some.len() <= TASK_FILES as usize);
                    for file in some {
                        *files.entry((file.folder, file.name)).or_insert(0) += 1;
                    }
                }
                FleetTask::Stretch { entry, range, .. } => stretches.push((entry.name, range)),
            }
        }
        assert_eq!(files.len(), 2500);
        assert!(files.values().all(|count| *count == 1));
        let large = c"large".to_owned();
        for range in [0..100 << 10, 100 << 10..200 << 10, 200 << 10..(300 << 10) + 5] {
            assert!(stretches.contains(&(large.clone(), range)));
        }
        let holed: Vec<_> = stretches.iter().filter(|(name, _)| *name != large).collect();
        assert_eq!(holed, [&(c"sparse".to_owned(), 700 << 10..800 << 10)]);
    }
}
