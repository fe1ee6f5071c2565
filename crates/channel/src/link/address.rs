//! The address of a listener, which is the path of a socket file. The directory of the file controls access. Abstract
//! socket names are not used, because any user could take such a name first.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use thalweg_sys::Errno;

/// The path of a listener's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    path: PathBuf,
}

impl Address {
    /// Returns the address for a name in this user's own directory: `$XDG_RUNTIME_DIR/thalweg/NAME`, or
    /// `/tmp/thalweg-UID/NAME` if that variable is not an absolute path. Creates the directory with mode 0700 if it is
    /// missing. A name consists of letters, digits, `.`, `_` and `-`, and does not begin with a dot. Returns
    /// [`Error::NotPermitted`] if other users own or can access the directory.
    pub fn named(name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            let why = format!(
                "{name:?} is not the name of a channel: use letters, digits, '.', '_' and '-', and no dot at \
                 the beginning; a path must contain a slash"
            );
            return Err(Error::NotPermitted { why });
        }
        let directory = directory();
        own(&directory)?;
        Ok(Self { path: directory.join(name) })
    }

    /// Returns the address for a path. The caller must ensure that the directory has the right permissions.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Parses user input: a path if it contains a slash, otherwise a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains('/') { Ok(Self::at(text)) } else { Self::named(text) }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(path) if path.is_absolute() => path.join("thalweg"),
        _ => format!("/tmp/thalweg-{}", rustix::process::geteuid().as_raw()).into(),
    }
}

/// Creates the directory if it is missing. Rejects a directory that another user owns or can access, because in `/tmp`
/// any user may have created it first.
fn own(directory: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(Error::at("mkdir", directory)(errno));
        }
        _ => {}
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    let opened = opened.map_err(Error::at("open", directory))?;
    let known = std::fs::File::from(opened).metadata();
    let known = known
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .map_err(Error::at("stat", directory))?;
    let us = rustix::process::geteuid().as_raw();
    if known.uid() != us || known.mode() & 0o077 != 0 {
        let why = format!(
            "{} belongs to user {} with mode {:03o}; it must belong to you (user {us}) and have mode 700. \
             Remove it, or set XDG_RUNTIME_DIR",
            directory.display(),
            known.uid(),
            known.mode() & 0o777
        );
        return Err(Error::NotPermitted { why });
    }
    Ok(())
}
