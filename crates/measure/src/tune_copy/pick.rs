//! Draws a sample of a tree: files from all parts of it, copied once into a temporary directory.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::TuneError;
use crate::StopCheck;
use crate::stats::Random;

/// Maximum number of files in a sample.
const MOST_FILES: usize = 2000;
/// Maximum number of bytes in a sample.
const MOST_BYTES: u64 = 64 << 20;
/// Longer files are truncated to this size, so that one of them does not fill the sample.
const LONGEST: u64 = 16 << 20;
/// Number of passes over the tree in which the selected files are copied. If time runs out, the sample has fewer
/// files, but still from all parts of the tree.
const PASSES: usize = 8;

/// A regular file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picked {
    pub path: PathBuf,
    /// The path of the file inside a sample.
    pub inside: PathBuf,
    /// The number of files that the walk found before it.
    order: usize,
}

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walk {
    /// Randomly selected files, in the order of the walk.
    pub picked: Vec<Picked>,
    /// The number of files, if the walk was completed.
    pub files: Option<usize>,
}

/// Selects files at random while walking the sources; every file is equally likely. Symbolic links are not followed.
/// Stops after the time `enough`.
pub(super) fn pick(
    sources: &[PathBuf],
    enough: Duration,
    random: &mut Random,
    stop: &StopCheck<'_>,
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
        // Directories that cannot be listed are skipped; the copy reports them.
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

/// A random sample of fixed size from a sequence of unknown length (Vitter's algorithm R).
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
pub(super) struct SampledFiles {
    pub files: u64,
    pub bytes: u64,
    /// The time to write it.
    pub written: Duration,
}

/// Copies the selected files into `folder` until the sample is full or `enough` returns `true`.
/// `enough` gets the sample so far and the elapsed time. Files that cannot be read are skipped.
pub(super) fn gather(
    picked: &[Picked],
    folder: &Path,
    enough: &mut dyn FnMut(&SampledFiles, Duration) -> bool,
    stop: &StopCheck<'_>,
) -> Result<SampledFiles, TuneError> {
    let began = Instant::now();
    let mut sampled = SampledFiles::default();
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

    /// Twenty directories with two hundred files each, and a symbolic link.
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
        let mut enough = |sampled: &SampledFiles, _| sampled.files >= 51;
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
