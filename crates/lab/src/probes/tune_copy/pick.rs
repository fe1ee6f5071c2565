//! A sample of a tree: files from all over it, copied once into a folder of our own.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::TuneError;
use crate::measure::Stop;
use crate::measure::stats::Random;

/// Files in a sample at most.
const MOST_FILES: usize = 2000;
/// Bytes in a sample at most.
const MOST_BYTES: u64 = 64 << 20;
/// Longer files are cut to this, so that one of them does not fill the sample.
const LONGEST: u64 = 16 << 20;
/// The picked files are copied in so many passes over the tree: when time is up the sample is
/// thinner, and still from all over it.
const PASSES: usize = 8;

/// A regular file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picked {
    pub path: PathBuf,
    /// Its path inside a sample.
    pub inside: PathBuf,
    /// How many files the walk met before it.
    order: usize,
}

/// What a walk found.
#[derive(Debug)]
pub(super) struct Walk {
    /// Files drawn by lot, in the order of the walk.
    pub picked: Vec<Picked>,
    /// How many files were met, if the walk came to its end.
    pub files: Option<usize>,
}

/// Draws files by lot while walking the sources, every file met as likely as any other. Links are
/// not followed. Ends early when `enough` time has passed.
pub(super) fn pick(
    sources: &[PathBuf],
    enough: Duration,
    random: &mut Random,
    stop: &Stop<'_>,
) -> Result<Walk, TuneError> {
    let began = Instant::now();
    let mut lot = Lot { picked: Vec::new(), met: 0, random };
    let number = |n: usize| PathBuf::from(n.to_string());
    let (mut folders, mut whole) = (Vec::new(), true);
    for (n, source) in sources.iter().enumerate().rev() {
        let meta = fs::metadata(source).map_err(TuneError::io(source))?;
        if meta.is_dir() {
            folders.push((source.clone(), number(n)));
        } else if meta.is_file() {
            lot.met(source.clone(), number(n));
        }
    }
    while let Some((folder, inside)) = folders.pop() {
        stop()?;
        if began.elapsed() >= enough {
            whole = false;
            break;
        }
        // What cannot be listed is the copy's business, not the measurement's.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let inside = inside.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((entry.path(), inside)),
                Ok(kind) if kind.is_file() => lot.met(entry.path(), inside),
                _ => {}
            }
        }
    }
    lot.picked.sort_by_key(|file| file.order);
    Ok(Walk { picked: lot.picked, files: whole.then_some(lot.met) })
}

/// A sample of constant size of a row whose length is not known (Vitter's algorithm R).
struct Lot<'l> {
    picked: Vec<Picked>,
    met: usize,
    random: &'l mut Random,
}

impl Lot<'_> {
    fn met(&mut self, path: PathBuf, inside: PathBuf) {
        let file = Picked { path, inside, order: self.met };
        self.met += 1;
        if self.picked.len() < MOST_FILES {
            self.picked.push(file);
            return;
        }
        let place = self.random.below(self.met);
        if let Some(loser) = self.picked.get_mut(place) {
            *loser = file;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sampled {
    pub files: u64,
    pub bytes: u64,
    /// What writing it took.
    pub written: Duration,
}

/// Copies the picked files into `folder` until the sample is full, or `enough` says so of the sample
/// and of the time altogether. Files that cannot be read are left out.
pub(super) fn gather(
    picked: &[Picked],
    folder: &Path,
    enough: &mut dyn FnMut(&Sampled, Duration) -> bool,
    stop: &Stop<'_>,
) -> Result<Sampled, TuneError> {
    let began = Instant::now();
    let mut sampled = Sampled::default();
    fs::create_dir(folder).map_err(TuneError::io(folder))?;
    let passes = (0..PASSES).flat_map(|pass| picked.iter().skip(pass).step_by(PASSES));
    for file in passes {
        stop()?;
        if sampled.bytes >= MOST_BYTES || (sampled.files > 0 && enough(&sampled, began.elapsed())) {
            break;
        }
        let Ok(bytes) = start_of(&file.path, LONGEST.min(MOST_BYTES - sampled.bytes)) else {
            continue;
        };
        let writes = Instant::now();
        let copy = folder.join(&file.inside);
        let parent = copy.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(TuneError::io(parent))?;
        fs::write(&copy, &bytes).map_err(TuneError::io(&copy))?;
        sampled.written += writes.elapsed();
        sampled.files += 1;
        sampled.bytes += bytes.len() as u64;
    }
    Ok(sampled)
}

fn start_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Twenty folders with two hundred files each, and a link.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in 0..20 {
            let path = root.path().join(format!("{folder}"));
            fs::create_dir(&path).unwrap();
            (0..200).for_each(|n| fs::write(path.join(format!("{n}")), vec![1; n]).unwrap());
        }
        std::os::unix::fs::symlink("/dev/zero", root.path().join("link")).unwrap();
        root
    }

    #[test]
    fn files_are_picked_from_all_over_in_the_order_of_the_walk() {
        let root = tree();
        let sources = [root.path().to_owned()];
        let walk = pick(&sources, LONG, &mut Random::new(1), &|| Ok(())).unwrap();
        assert_eq!(walk.files, Some(4000));
        let picked = walk.picked;
        assert_eq!(picked.len(), MOST_FILES);
        assert!(picked.is_sorted_by_key(|file| file.order));
        for folder in 0..20 {
            let parent = root.path().join(format!("{folder}"));
            let from_here = picked.iter().filter(|file| file.path.parent() == Some(&parent));
            let from_here = from_here.count();
            assert!((60..140).contains(&from_here), "{folder}: {from_here}");
        }
    }

    #[test]
    fn a_sample_is_cut_evenly_when_time_is_up() {
        let root = tree();
        let sources = [root.path().join("3"), root.path().join("4"), root.path().join("5/7")];
        let picked = pick(&sources, LONG, &mut Random::new(1), &|| Ok(())).unwrap().picked;
        assert_eq!(picked.len(), 401);
        let folder = root.path().join("sample");
        let mut enough = |sampled: &Sampled, _| sampled.files >= 51;
        let sampled = gather(&picked, &folder, &mut enough, &|| Ok(())).unwrap();
        assert_eq!(sampled.files, 51);
        for part in ["0", "1"] {
            let files = fs::read_dir(folder.join(part)).unwrap().count();
            assert!((20..=30).contains(&files), "{part}: {files}");
        }
        let whole = root.path().join("whole");
        let sampled = gather(&picked, &whole, &mut |_, _| false, &|| Ok(())).unwrap();
        assert_eq!((sampled.files, sampled.bytes), (401, 2 * (199 * 200 / 2) + 7));
        assert_eq!(fs::read(whole.join("2")).unwrap(), [1; 7]);
    }

    #[test]
    fn a_walk_that_is_cut_short_does_not_say_how_many_files_there_are() {
        let root = tree();
        let walk = pick(&[root.path().to_owned()], Duration::ZERO, &mut Random::new(1), &|| Ok(()));
        assert_eq!(walk.unwrap().files, None);
    }

    #[test]
    fn long_files_are_cut_and_missing_ones_left_out() {
        let root = tempfile::tempdir().unwrap();
        let long = root.path().join("long");
        File::create(&long).unwrap().set_len(LONGEST + 1).unwrap();
        let sources = [long];
        let mut picked = pick(&sources, LONG, &mut Random::new(1), &|| Ok(())).unwrap().picked;
        let gone = Picked { path: root.path().join("gone"), inside: "9".into(), order: 1 };
        picked.push(gone);
        let place = root.path().join("s");
        let sampled = gather(&picked, &place, &mut |_, _| false, &|| Ok(())).unwrap();
        assert_eq!((sampled.files, sampled.bytes), (1, LONGEST));
    }
}
