//! Where a listener is found: a socket file, because its directory says who may come near. An
//! abstract name would be free for any user to take first.

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
    /// A name among this user's: `$XDG_RUNTIME_DIR/thalweg/NAME`, else `/tmp/thalweg-UID/NAME`, in
    /// a directory of mode 0700 that is made if missing. Letters, digits, `.`, `_` and `-`, not
    /// beginning with a dot. [`Error::NotPermitted`] if the directory is not ours alone.
    pub fn named(name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            let why = format!(
                "{name:?} is no name of a channel: letters, digits, '.', '_' and '-', not \
                 beginning with a dot; for a path say one with a slash"
            );
            return Err(Error::NotPermitted { why });
        }
        let directory = directory();
        own(&directory)?;
        Ok(Self { path: directory.join(name) })
    }

    /// A path of the caller's choice; who may reach it is the caller's affair.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// What a user typed: with a slash a path, else a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.contains('/') { Ok(Self::at(text)) } else { Self::named(text) }
    }

    /// The socket's path.
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

/// Makes the directory if it is missing, and refuses one that another user made or can enter: in
/// `/tmp` anybody may have come first.
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
            "{} belongs to user {} with mode {:03o}; it must be ours ({us}) with mode 700. \
             Remove it, or set XDG_RUNTIME_DIR",
            directory.display(),
            known.uid(),
            known.mode() & 0o777
        );
        return Err(Error::NotPermitted { why });
    }
    Ok(())
}
