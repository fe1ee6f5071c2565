//! The part of a file that represents the whole, and its location.

use serde::Serialize;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use thalweg_core::{Guarantees, Tuning, mechanisms::LAST_RESORT, profile::SinkState};

use super::TuneError;
use crate::StopCheck;
use crate::{
    arms::transfer::{Medium, Terms, TunedMechanism, Whole},
    scratch::ScratchFolder,
};

/// The bytes that every sample moves.
#[derive(Clone, Debug, Serialize)]
pub struct SliceFacts {
    pub bytes: u64,
    pub files: u64,
    /// The number of bytes of the whole job, if known.
    pub of: Option<u64>,
    pub placement: Placement,
    /// `true` if the slice contains holes, which `cp` skips and other arms (compared variants) read.
    pub holes: bool,
}

/// The location of the measured bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The whole source itself.
    Whole,
    /// A file with the first bytes, in the directory of the source.
    BesideSource,
    /// A file with the first bytes, in the destination, on the same file system as the source.
    InDestination,
    /// Our arms read the first bytes of the source itself; `cp` reads a copy of them in the destination, on another
    /// file system. Used if no file could be created next to the source.
    Prefix,
    /// Files from all parts of a tree, copied to the destination. The destination's file system stands in for that of
    /// the tree.
    Sample,
}

/// A slice, and the temporary directory that contains it.
pub(super) struct Slice {
    pub facts: SliceFacts,
    /// The file that our arms read.
    pub source: PathBuf,
    /// The file that `cp` reads.
    pub peer_source: PathBuf,
    _folder: Option<ScratchFolder>,
}

impl Slice {
    /// Creates a slice with the first `bytes` of a file, in a separate file if the source is longer.
    pub fn make(
        source: &Path,
        bytes: u64,
        scratch: &ScratchFolder,
        stop: &StopCheck<'_>,
    ) -> Result<Self, TuneError> {
        let meta = fs::metadata(source).map_err(TuneError::io(source))?;
        let holes = meta.blocks() * 512 < meta.len();
        let facts = |placement, holes| SliceFacts {
            bytes,
            files: 1,
            of: Some(meta.len()),
            placement,
            holes,
        };
        let own = source.to_owned();
        if bytes >= meta.len() {
            let facts = facts(Placement::Whole, holes);
            return Ok(Self { facts, source: own.clone(), peer_source: own, _folder: None });
        }
        let parent = source.parent().unwrap_or(Path::new("/"));
        if let Ok(folder) = ScratchFolder::inside(parent) {
            let path = folder.file("slice");
            copy(source, &path, bytes, stop)?;
            let (facts, source) = (facts(Placement::BesideSource, false), path.clone());
            return Ok(Self { facts, source, peer_source: path, _folder: Some(folder) });
        }
        let path = scratch.file("slice");
        copy(source, &path, bytes, stop)?;
        let device = fs::metadata(&path).map_err(TuneError::io(&path))?.dev();
        let (placement, source) = if device == meta.dev() {
            (Placement::InDestination, path.clone())
        } else {
            (Placement::Prefix, own)
        };
        let holes = placement == Placement::Prefix && holes;
        Ok(Self { facts: facts(placement, holes), source, peer_source: path, _folder: None })
    }
}

/// Copies the first bytes of a file with the reference mechanism.
fn copy(from: &Path, to: &Path, len: u64, stop: &StopCheck<'_>) -> Result<(), TuneError> {
    let terms = Terms { state: SinkState::Fresh, needs: Guarantees::default(), stop };
    let whole = Whole::between(Medium::File(from), Medium::File(to), terms);
    let mut whole = whole.map_err(TuneError::io(to))?;
    whole.size = len;
    let tuned = TunedMechanism { mechanism: LAST_RESORT, tuning: &Tuning::default() };
    match whole.sample(tuned, 1) {
        Ok(_) => Ok(()),
        Err(failure) => {
            let unfit = failure.unfit()?;
            let error = unfit.errno.map_or_else(|| io::Error::other(unfit.reason), io::Error::from);
            Err(TuneError::io(to)(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(source: &Path, bytes: u64, scratch: &ScratchFolder) -> Slice {
        Slice::make(source, bytes, scratch, &|| Ok(())).unwrap()
    }

    #[test]
    fn a_slice_lies_beside_its_source_and_goes_with_its_folder() {
        let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = ScratchFolder::inside(away.path()).unwrap();
        let source = home.path().join("file");
        fs::write(&source, vec![3; 10_000]).unwrap();
        let whole = slice(&source, 10_000, &scratch);
        assert_eq!((whole.facts.placement, &whole.source), (Placement::Whole, &source));
        let part = slice(&source, 4096, &scratch);
        assert_eq!(part.facts.placement, Placement::BesideSource);
        assert_eq!(fs::read(&part.source).unwrap(), [3; 4096]);
        drop(part);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn where_nothing_can_be_made_the_source_itself_is_read() {
        let away = tempfile::tempdir().unwrap();
        let scratch = ScratchFolder::inside(away.path()).unwrap();
        // No user can create a directory in sysfs.
        let source = Path::new("/sys/kernel/uevent_seqnum");
        let part = slice(source, 1, &scratch);
        assert_eq!((part.facts.placement, part.source.as_path()), (Placement::Prefix, source));
        assert_eq!(fs::read(&part.peer_source).unwrap().len(), 1);
    }

    #[test]
    fn holes_are_detected() {
        let home = tempfile::tempdir().unwrap();
        let scratch = ScratchFolder::inside(home.path()).unwrap();
        let source = home.path().join("file");
        fs::File::create(&source).unwrap().set_len(1 << 20).unwrap();
        assert!(slice(&source, 1 << 20, &scratch).facts.holes);
        assert!(!slice(&source, 4096, &scratch).facts.holes);
    }
}
