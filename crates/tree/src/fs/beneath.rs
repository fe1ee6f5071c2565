//! Opens paths beneath a directory. The result is never outside of the directory, even if other processes rename or
//! replace entries during the call.

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2},
    path::Arg,
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};
use thalweg_core::cadence::ATTEMPTS;
use thalweg_sys::{Errno, opened::chmod_opened};

use super::list::DIRECTORY;
use crate::identity::kind;

/// The symbolic links that may be part of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowLinks {
    /// No links: the path fails with ELOOP.
    Never,
    /// Links that do not leave the root at any step. If openat2(2) is not available, links are not followed.
    #[default]
    Inside,
    /// All links. The result may be outside of the root.
    Anywhere,
}

/// A directory beneath which paths are opened.
#[derive(Debug)]
pub struct Beneath<D> {
    root: D,
    links: FollowLinks,
    /// `true` if the kernel lacks `openat2` or a seccomp filter rejects it. Paths are then opened one name at a time.
    needs_names: AtomicBool,
}

// Maximum length of a path in one call, including its NUL.
const PATH_MAX: usize = 4096;
// Flags for a directory on the way to a file.
const STEP: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl<D: AsFd> Beneath<D> {
    /// Creates an opener for paths beneath `root`.
    pub fn new(root: D, links: FollowLinks) -> Self {
        Self { root, links, needs_names: AtomicBool::new(false) }
    }

    /// Returns the directory.
    pub fn root(&self) -> &D {
        &self.root
    }

    /// Returns which symbolic links are followed.
    pub fn links(&self) -> FollowLinks {
        self.links
    }

    /// Opens a path of any length. An empty path is the root itself.
    pub fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut opened: Option<OwnedFd> = None;
        let mut rest = if path.is_empty() { b"." } else { path };
        // If the path is too long for one call, it is opened in several steps.
        while rest.len() >= PATH_MAX {
            let cut = rest[..PATH_MAX - 1].iter().rposition(|byte| *byte == b'/');
            let (head, tail) = rest.split_at(cut.filter(|cut| *cut > 0).ok_or(Errno::NAMETOOLONG)?);
            let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = opened.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            opened = Some(self.resolve(dir, head, step)?);
            rest = &tail[1..];
        }
        self.resolve(opened.as_ref().map_or(self.root.as_fd(), AsFd::as_fd), rest, flags)
    }

    fn resolve(&self, dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let rules = match self.links {
            FollowLinks::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            FollowLinks::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            FollowLinks::Anywhere => return openat(dir, path, flags, Mode::empty()),
        };
        if self.needs_names.load(Ordering::Relaxed) {
            return open_by_names(dir, path, flags);
        }
        for _ in 0..ATTEMPTS {
            match openat2(dir, path, flags, Mode::empty(), rules) {
                // Another process renamed a directory of the path during the call.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => {
                    self.needs_names.store(true, Ordering::Relaxed);
                    return open_by_names(dir, path, flags);
                }
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Opens a directory to work in. If the user has no read permission to it, the descriptor has `O_PATH`.
pub(crate) fn open_directory(
    dir: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    match openat(&dir, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => openat(&dir, name, flags | OFlags::PATH, Mode::empty()),
        answer => answer,
    }
}

/// Opens a directory. If its mode denies access, changes the mode first. Neither step follows symbolic links.
pub(crate) fn open_by_force(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match openat(dir, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let itself = openat(dir, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
            chmod_opened(&itself, 0o700)?;
            openat(&itself, c".", DIRECTORY, Mode::empty())
        }
        answer => answer,
    }
}

/// Opens a path name by name, without `openat2`. Symbolic links are not followed.
fn open_by_names(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names = names.peekable();
    let mut here: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let dir = here.as_ref().map_or(root, AsFd::as_fd);
        let flags = if names.peek().is_some() { STEP } else { flags | OFlags::NOFOLLOW };
        here = Some(openat(dir, name, flags, Mode::empty())?);
    }
    let opened = here.ok_or(Errno::NOENT)?;
    // With `O_PATH`, only `O_NOFOLLOW` opens a symbolic link itself. All other callers must get ELOOP.
    let may_be_link = flags.contains(OFlags::PATH) && !flags.contains(OFlags::NOFOLLOW);
    if may_be_link && kind(&fstat(&opened)?) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
    const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

    #[test]
    fn nothing_outside_is_opened_with_openat2_and_without() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("root/folder/deep")).unwrap();
        fs::write(at("outside"), "secret").unwrap();
        fs::write(at("root/folder/file"), "text").unwrap();
        symlink("../outside", at("root/out")).unwrap();
        symlink("folder", at("root/in")).unwrap();
        for by_names in [false, true] {
            for links in [FollowLinks::Never, FollowLinks::Inside] {
                let beneath = Beneath::new(fs::File::open(at("root")).unwrap(), links);
                beneath.needs_names.store(by_names, Ordering::Relaxed);
                for flags in [READ, PATH] {
                    for path in ["", ".", "folder", "folder/file", "./folder//deep"] {
                        beneath.open(path.as_bytes(), flags).unwrap();
                    }
                    for path in ["out", "../outside", "/etc/passwd", "folder/../../outside"] {
                        assert!(beneath.open(path.as_bytes(), flags).is_err(), "{path}");
                    }
                    let follows = links == FollowLinks::Inside && !by_names;
                    for path in ["in", "in/file"] {
                        let opened = beneath.open(path.as_bytes(), flags);
                        assert_eq!(opened.is_ok(), follows, "{path} {links:?} {by_names}");
                    }
                    assert_eq!(beneath.open(b"none", flags).unwrap_err(), Errno::NOENT);
                }
            }
        }
    }

    #[test]
    fn a_path_longer_than_a_call_takes_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let beneath = Beneath::new(fs::File::open(place.path()).unwrap(), FollowLinks::Never);
        let name = "n".repeat(200);
        let mut path = Vec::new();
        for _ in 0..50 {
            let dir = beneath.open(&path, READ).unwrap();
            rustix::fs::mkdirat(&dir, &*name, Mode::RWXU).unwrap();
            path.extend_from_slice(name.as_bytes());
            path.push(b'/');
        }
        path.pop();
        assert!(path.len() > 2 * PATH_MAX);
        beneath.open(&path, PATH).unwrap();
        Beneath::new(beneath.root(), FollowLinks::Anywhere).open(&path, PATH).unwrap();
        beneath.needs_names.store(true, Ordering::Relaxed);
        beneath.open(&path, PATH).unwrap();
    }
}
