//! The expected files and hashes of a manifest.

use rustix::fs::{FileType, Stat, fstat, stat};
use std::{
    borrow::Cow,
    collections::HashMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};
use thalweg_sys::Errno;

use super::{Digest, Manifest};
use crate::{
    Error, Hash,
    error::at_path,
    fs::walk::WalkRoot,
    identity::kind,
    names::{c_string, os_bytes},
    read::open,
};

/// The name and the errno of a failed call.
pub(crate) type HashFailure = (&'static str, Errno);

/// State of a comparison of files with a manifest.
pub(crate) struct ManifestCheck<'c> {
    manifest: Cow<'c, Manifest>,
    names: HashMap<Vec<u8>, usize>,
    hash: Option<Hash>,
    /// The hash for lines with 64 digits, as an index into [`ALIKE`] plus one; 0 while it is unknown. The first file
    /// with a digest that matches determines it.
    shown: AtomicU8,
    place: FilesLocation,
}

/// The location of the files.
enum FilesLocation {
    /// The files are in a directory.
    Folder(Arc<WalkRoot>, PathBuf),
    /// The manifest has one file, at this path.
    File(PathBuf),
}

/// Hashes that have an equal number of digits.
const ALIKE: [Hash; 2] = [Hash::Sha256, Hash::Blake3];

impl FilesLocation {
    fn open(destination: &Path, manifest: &Manifest) -> Result<Self, Error> {
        let stat = stat(destination).map_err(at_path(destination, "stat"))?;
        if kind(&stat) == FileType::Directory {
            let name = c_string(destination.as_os_str())?;
            let root = WalkRoot::open([None, Some(&name)])?;
            return Ok(Self::Folder(Arc::new(root), destination.to_owned()));
        }
        if manifest.lines.len() != 1 {
            let count = manifest.lines.len();
            let message =
                format!("the manifest lists {count} files; give the directory that contains them");
            return Err(Error::Usage(message));
        }
        Ok(Self::File(destination.to_owned()))
    }
}

impl<'c> ManifestCheck<'c> {
    /// Prepares a comparison with the files at `destination`. `hash` is the hash for lines that do not name a hash.
    pub fn new(
        manifest: &'c Manifest,
        destination: &Path,
        hash: Option<Hash>,
    ) -> Result<Self, Error> {
        let place = FilesLocation::open(destination, manifest)?;
        let exists = |name: &[u8]| destination.join(os_bytes(name)).symlink_metadata().is_ok();
        let with_returns = manifest.with_returns(exists);
        let manifest = with_returns.map_or(Cow::Borrowed(manifest), Cow::Owned);
        Ok(Self { names: manifest.names(), manifest, hash, shown: AtomicU8::new(0), place })
    }

    /// Returns the directory of the files; `None` for a single file.
    pub fn folder(&self) -> Option<&Arc<WalkRoot>> {
        match &self.place {
            FilesLocation::Folder(root, _) => Some(root),
            FilesLocation::File(_) => None,
        }
    }

    /// Returns `true` if a line names this path.
    pub fn has(&self, path: &[u8]) -> bool {
        self.names.contains_key(path)
    }

    /// Returns the line number in the manifest file.
    pub fn number(&self, line: usize) -> usize {
        self.manifest.lines[line].0
    }

    /// Returns the hashes that a line may contain.
    pub fn hashes(&self, line: usize) -> Vec<Hash> {
        let (_, stated) = &self.manifest.lines[line];
        let shown = usize::from(self.shown.load(Ordering::Relaxed));
        let known = stated.hash.or(self.hash).or_else(|| ALIKE.get(shown.wrapping_sub(1)).copied());
        known.map_or_else(|| ALIKE.to_vec(), |hash| vec![hash])
    }

    /// Returns `true` if one of the digests equals that of the line. The digests must be in the order of
    /// [`Self::hashes`].
    pub fn agrees(&self, line: usize, digests: &[Digest]) -> bool {
        let stated = self.manifest.lines[line].1.digest;
        let found = digests.iter().position(|digest| *digest == stated);
        if let (Some(found), true) = (found, digests.len() == ALIKE.len()) {
            self.shown.store(found as u8 + 1, Ordering::Relaxed);
        }
        found.is_some()
    }

    pub fn path(&self, line: usize) -> PathBuf {
        match &self.place {
            FilesLocation::Folder(_, path) => {
                path.join(os_bytes(&self.manifest.lines[line].1.name))
            }
            FilesLocation::File(path) => path.clone(),
        }
    }

    pub fn open(&self, line: usize) -> Result<(OwnedFd, Stat), HashFailure> {
        let fd = match &self.place {
            FilesLocation::Folder(root, _) => root.open_path(1, &self.manifest.lines[line].1.name),
            FilesLocation::File(path) => {
                let name = c_string(path.as_os_str()).map_err(|_| ("openat", Errno::INVAL))?;
                open(rustix::fs::CWD, &name, true)
            }
        };
        let fd = fd.map_err(|errno| ("openat", errno))?;
        let stat = fstat(&fd).map_err(|errno| ("fstat", errno))?;
        Ok((fd, stat))
    }
}
