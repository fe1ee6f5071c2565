//! Follows the symbolic links of a path, except those that another user may have planted.

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat, openat2,
    readlinkat,
};
use std::{
    ffi::{CStr, CString},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};
use thalweg_sys::Errno;

use super::ownership::is_trap;

/// The number of symbolic links that the kernel follows in one path.
const MOST_LINKS: usize = 40;
const BY_PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The end of a path after symbolic links.
#[derive(Debug)]
pub enum Followed {
    /// A directory, and a name in it that is not a symbolic link. The name may not exist.
    At(OwnedFd, CString),
    /// A magic link of `/proc`. It leads to an open file, but its text may not be the path of that file.
    Magic,
    /// A symbolic link of another user in a directory that every user may write.
    Trap,
}

/// Follows the symbolic links of a name in `dir`.
pub fn follow(dir: BorrowedFd<'_>, name: &CStr) -> Result<Followed, Errno> {
    let dir = openat(dir, c".", BY_PATH | OFlags::DIRECTORY, Mode::empty())?;
    walk(dir, vec![name.to_bytes().to_vec()])
}

/// Opens a directory to write into. Fails with `EACCES` if a component of the path is another user's symbolic link in a
/// directory that every user may write. The kernel does this only if `fs.protected_symlinks` is set.
pub fn open_directory(path: &Path, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // ELOOP: the path contains a symbolic link. ENOSYS, EPERM: the kernel or a seccomp filter refuses openat2.
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM) => {}
        answer => return answer,
    }
    let start = if path.is_absolute() { c"/" } else { c"." };
    let start = openat(CWD, start, BY_PATH | OFlags::DIRECTORY, Mode::empty())?;
    match walk(start, components(path.as_os_str().as_bytes()))? {
        Followed::At(dir, name) => openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()),
        Followed::Magic => openat(CWD, path, flags, Mode::empty()),
        Followed::Trap => Err(Errno::ACCESS),
    }
}

/// Walks from `dir` along the components in `left`, last element first. Each link is read through a checked descriptor.
fn walk(mut dir: OwnedFd, mut left: Vec<Vec<u8>>) -> Result<Followed, Errno> {
    let mut links = 0;
    while let Some(name) = left.pop() {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let is_last = left.is_empty();
        let entry = match openat(&dir, &*name, BY_PATH | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return Ok(Followed::At(dir, name)),
            opened => opened?,
        };
        let stat = fstat(&entry)?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !is_link && is_last {
            return Ok(Followed::At(dir, name));
        }
        if !is_link {
            dir = entry;
            continue;
        }
        if fstatfs(&dir)?.f_type == PROC_SUPER_MAGIC {
            if is_last {
                return Ok(Followed::Magic);
            }
            dir = openat(&dir, &*name, BY_PATH | OFlags::DIRECTORY, Mode::empty())?;
            continue;
        }
        if is_trap(&fstat(&dir)?, &stat) {
            return Ok(Followed::Trap);
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&entry, c"", Vec::new())?.into_bytes();
        if target.starts_with(b"/") {
            dir = openat(CWD, c"/", BY_PATH | OFlags::DIRECTORY, Mode::empty())?;
        }
        left.extend(components(&target));
    }
    Ok(Followed::At(dir, c".".to_owned()))
}

/// Returns a path's components in reverse order. A trailing slash adds `.`, so that a link before it is followed.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    if path.ends_with(b"/") {
        names.push(b".".to_vec());
    }
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::{
        fs,
        os::{
            fd::AsFd,
            unix::fs::{MetadataExt, PermissionsExt, symlink},
        },
    };

    use crate::atomic_file::{failed, ownership::is_trap_at};

    fn give_away(path: &Path) -> bool {
        let nobody = Some(rustix::fs::Uid::from_raw(65534));
        rustix::fs::chownat(CWD, path, nobody, None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_link_of_another_user_in_a_directory_for_all_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink("target", &link).unwrap();
        let dir = fs::File::open(folder.path()).unwrap();
        let follow = || follow(dir.as_fd(), c"link").map_err(failed("openat")).unwrap();
        chmod(folder.path(), 0o1777);
        assert!(matches!(follow(), Followed::At(_, name) if name.as_c_str() == c"target"));
        if !give_away(&link) {
            return;
        }
        assert!(matches!(follow(), Followed::Trap));
        assert!(is_trap_at(&dir, c"link").unwrap() && !is_trap_at(&dir, c"none").unwrap());
        let written = crate::atomic_file::write_file(&link, b"lost");
        assert_eq!(written, Err(crate::atomic_file::DestinationError::Trap));
        for mode in [0o1755, 0o777] {
            chmod(folder.path(), mode);
            assert!(matches!(follow(), Followed::At(..)));
        }
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn a_directory_is_opened_through_all_links_but_those_of_other_users_in_a_directory_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("real/deep")).unwrap();
        fs::create_dir(path("shared")).unwrap();
        symlink("../real/", path("shared/relative")).unwrap();
        symlink(path("shared/relative/deep"), path("absolute")).unwrap();
        symlink("loop", path("loop")).unwrap();
        let open = |name: &str| open_directory(&path(name), OFlags::PATH);
        let inode = |name: &str| fstat(open(name).unwrap()).unwrap().st_ino;
        let [real, deep] =
            ["real", "real/deep"].map(|name| fs::metadata(path(name)).unwrap().ino());
        assert_eq!(
            (inode("real"), inode("real/deep/.."), inode("shared/relative")),
            (real, real, real)
        );
        assert_eq!(
            (inode("shared/relative/deep"), inode("absolute/"), inode("absolute/.")),
            (deep, deep, deep)
        );
        assert_eq!(open("loop").unwrap_err(), Errno::LOOP);
        assert_eq!(open("shared/none").unwrap_err(), Errno::NOENT);
        assert_eq!(open("absolute/none/x").unwrap_err(), Errno::NOENT);
        assert!(open_directory(Path::new("/proc/self/cwd"), OFlags::PATH).is_ok());
        assert!(open_directory(Path::new("/"), OFlags::PATH).is_ok());
        chmod(&path("shared"), 0o1777);
        assert_eq!(inode("absolute"), deep);
        if !give_away(&path("shared/relative")) {
            return;
        }
        for name in ["shared/relative", "shared/relative/", "shared/relative/deep", "absolute"] {
            assert_eq!(open(name).unwrap_err(), Errno::ACCESS, "{name}");
        }
    }
}
