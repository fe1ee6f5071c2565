//! Where received bytes land: a file that gets its name when it is whole, or a stream.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, openat, stat, statat, unlinkat,
};
use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};
use thalweg_core::shown;
use thalweg_sys::{Errno, io};
use thalweg_tree::unfinished_name;

use crate::{
    exit::{Exit, Failure, named},
    interrupt::is_interrupted,
    stdio::{self, OUTPUT},
};

/// An open destination.
pub struct Landing {
    name: String,
    fd: OwnedFd,
    form: Form,
    /// Whether a file of its name goes, if there is one.
    replace: bool,
}

enum Form {
    /// Standard output.
    Output,
    /// A device, a FIFO: what is written is there.
    Direct,
    /// A file without a name, to be linked.
    Nameless { path: PathBuf },
    /// A file under another name, on file systems without nameless ones.
    Named { path: PathBuf, part: PathBuf },
}

const TRIES: u32 = 100;
const EXISTS: &str = "there already; --force replaces it";

impl Landing {
    /// Opens it. Nothing can be seen of a file until it is published.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            stdio::expect_open(1, OUTPUT)?;
            let name = OUTPUT.to_owned();
            let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3);
            let fd = fd.map_err(|e| Failure::of_call("fcntl", &name, e))?;
            return Ok(Self { name, fd, form: Form::Output, replace: true });
        }
        let name = shown(path).to_string();
        let failed = |call: &str, errno| Failure::of_call(call, &name, errno);
        let mode = match stat(path) {
            // Else this would only show when everything has come.
            Err(Errno::NOENT) if path.as_os_str().as_bytes().ends_with(b"/") => {
                let message = format!("'{name}': no such folder; make it, or name a file");
                return Err(Failure::new(Exit::Usage, message));
            }
            // A link is followed, and this one cannot be; to replace it is what nobody asked for.
            Err(Errno::NOENT) if statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                let message = format!("'{name}': a symbolic link to nothing; remove it first");
                return Err(Failure::new(Exit::Failed, message));
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("stat", errno)),
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Some(Mode::from_raw_mode(found.st_mode & 0o777))
            }
            Ok(_) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let fd = openat(CWD, path, flags, Mode::empty());
                let fd = fd.map_err(|errno| failed("open", errno))?;
                return Ok(Self { name, fd, form: Form::Direct, replace: true });
            }
        };
        // A link is followed: the file it names is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (fd, form) = staged(&path).map_err(|errno| failed("open", errno))?;
        let landing = Self { name, fd, form, replace: true };
        if let Some(mode) = mode {
            // A file that is replaced keeps its mode where that is allowed.
            let _ = fchmod(&landing.fd, mode);
        }
        Ok(landing)
    }

    /// A file in a folder, under a name that somebody else gave it: of one part. No link of that
    /// name is followed, and nothing but a file or a link is replaced, with `force`.
    pub fn in_folder(folder: &Path, name: &OsStr, force: bool) -> Result<Self, Failure> {
        let path = folder.join(name);
        let name = shown(&path).to_string();
        let refused =
            |why: &str| Err(Failure::new(Exit::Failed, format!("{}: {why}", named(&name))));
        let mode = match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(Failure::of_call("stat", &name, errno)),
            Ok(_) if !force => return refused(EXISTS),
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => Some(Mode::from_raw_mode(found.st_mode & 0o777)),
                FileType::Symlink => None,
                _ => return refused("there already, and no file"),
            },
        };
        let (fd, form) = staged(&path).map_err(|errno| Failure::of_call("open", &name, errno))?;
        let landing = Self { name, fd, form, replace: force };
        if let Some(mode) = mode {
            let _ = fchmod(&landing.fd, mode);
        }
        Ok(landing)
    }

    /// Whether the bytes go to standard output.
    pub fn is_output(&self) -> bool {
        matches!(self.form, Form::Output)
    }

    /// Writes all of it.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match io::write(self.fd.as_fd(), bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) if !is_interrupted() => {}
                Err(Errno::AGAIN) => match io::wait_writable(self.fd.as_fd(), None) {
                    Ok(_) => {}
                    Err(Errno::INTR) if !is_interrupted() => {}
                    Err(errno) => return Err(Failure::of_call("poll", &self.name, errno)),
                },
                Err(errno) => return Err(Failure::of_call("write", &self.name, errno)),
            }
        }
        Ok(())
    }

    /// Gives a file its name; anything else only says whether it kept what it took.
    pub fn publish(&mut self) -> Result<(), Failure> {
        let failed = |call: &str, errno| Failure::of_call(call, &self.name, errno);
        match fstat(&self.fd).map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::RegularFile) => {
                io::flush(&self.fd).map_err(|errno| failed("close", errno))?;
            }
            _ => return Ok(()),
        }
        match &self.form {
            Form::Output | Form::Direct => Ok(()),
            Form::Nameless { path } => match io::link_tmpfile(&self.fd, CWD, path) {
                Err(Errno::EXIST) if !self.replace => Err(self.exists()),
                Err(Errno::EXIST) => {
                    let part = link_beside(&self.fd, path).map_err(|e| failed("linkat", e))?;
                    let renamed = io::rename(CWD, &part, CWD, path, false);
                    renamed.map_err(|errno| {
                        remove(&part);
                        failed("renameat2", errno)
                    })
                }
                answer => answer.map_err(|errno| failed("linkat", errno)),
            },
            Form::Named { path, part } => {
                let renamed = if self.replace {
                    io::rename(CWD, part, CWD, path, false)
                } else {
                    io::rename_new(CWD, part, CWD, path)
                };
                match renamed {
                    Ok(()) => {}
                    Err(Errno::EXIST) if !self.replace => return Err(self.exists()),
                    Err(errno) => return Err(failed("renameat2", errno)),
                }
                self.form = Form::Direct;
                Ok(())
            }
        }
    }
}

impl Landing {
    fn exists(&self) -> Failure {
        Failure::new(Exit::Failed, format!("{}: {EXISTS}", named(&self.name)))
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Form::Named { part, .. } = &self.form {
            remove(part);
        }
    }
}

fn remove(path: &Path) {
    // Nobody is left to tell.
    let _ = unlinkat(CWD, path, AtFlags::empty());
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A file that is not there yet.
fn staged(path: &Path) -> Result<(OwnedFd, Form), Errno> {
    let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
    match openat(CWD, folder_of(path), flags | OFlags::TMPFILE, mode) {
        Ok(fd) => return Ok((fd, Form::Nameless { path: path.to_owned() })),
        // Old kernels take O_TMPFILE for O_DIRECTORY.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        Err(errno) => return Err(errno),
    }
    for part in parts(path) {
        match openat(CWD, &part, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) => {}
            answer => {
                return answer.map(|fd| (fd, Form::Named { path: path.to_owned(), part }));
            }
        }
    }
    Err(Errno::EXIST)
}

fn link_beside(fd: &OwnedFd, path: &Path) -> Result<PathBuf, Errno> {
    for part in parts(path) {
        match io::link_tmpfile(fd, CWD, &part) {
            Err(Errno::EXIST) => {}
            answer => return answer.map(|()| part),
        }
    }
    Err(Errno::EXIST)
}

/// Names beside the final one, of the kind that a copy of the folder leaves out.
fn parts(path: &Path) -> impl Iterator<Item = PathBuf> {
    let (folder, name) = (folder_of(path), path.file_name().unwrap_or_default().to_owned());
    (0..TRIES).map(move |_| folder.join(unfinished_name(&name)))
}
