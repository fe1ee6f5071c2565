//! Determines the facts of a path on the command line, without opening it for writing.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};
use std::fmt::Write;
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_core::{End, EndFacts, Kind, shown};
use thalweg_sys::host::filesystem;

use crate::{
    exit::{CommandFailure, INPUT, OUTPUT},
    output::quantity,
    stdio,
};

/// An endpoint of a transfer that is planned but not executed.
#[derive(Debug)]
pub struct EndpointArg {
    /// The path as given, or `standard input`.
    pub name: String,
    pub facts: EndFacts,
    /// Directory for scratch files on the same file system.
    pub folder: PathBuf,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// An assumption, for messages: for example, that a directory stands for the files in it.
    pub assumed: Option<&'static str>,
}

impl EndpointArg {
    /// Examines the source. It must exist and be readable.
    pub fn of_source(path: &Path) -> Result<Self, CommandFailure> {
        if path.as_os_str() == "-" {
            let end = stdio::input()?;
            return Ok(Self { size: stdio::left_in(&end), ..Self::inherited(INPUT, &end) });
        }
        if let Some(end) = Self::of_word(path) {
            return Ok(end);
        }
        let name = path.display().to_string();
        let fd = look_at(path).map_err(|e| CommandFailure::of_call("open", &name, e))?;
        let end =
            Self::of_open(path, &fd).map_err(|e| CommandFailure::of_call("stat", &name, e))?;
        if end.facts.kind == Kind::File && end.assumed.is_none() {
            let readable = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            readable.map_err(|e| CommandFailure::of_call("open", &name, e))?;
        }
        Ok(end)
    }

    /// Examines the sink. It need not exist, but its directory must.
    pub fn of_sink(path: &Path) -> Result<Self, CommandFailure> {
        if path.as_os_str() == "-" {
            let end = stdio::output();
            let end = end?;
            return Ok(Self::inherited(OUTPUT, &end));
        }
        if let Some(end) = Self::of_word(path) {
            return Ok(end);
        }
        let name = path.display().to_string();
        match look_at(path) {
            Ok(fd) => {
                Self::of_open(path, &fd).map_err(|e| CommandFailure::of_call("stat", &name, e))
            }
            Err(Errno::NOENT) => {
                let folder = folder_of(path);
                let shown = folder.display().to_string();
                let fd =
                    look_at(&folder).map_err(|e| CommandFailure::of_call("open", &shown, e))?;
                let facts = file_on(&fd);
                Ok(Self { name, facts, folder, size: None, assumed: Some("does not exist yet") })
            }
            Err(errno) => Err(CommandFailure::of_call("open", &name, errno)),
        }
    }

    /// Returns an endpoint that does not exist yet: `memory:`, `pipe:`, `unix:` or `tcp:`. An address may follow
    /// `unix:` or `tcp:`, as in `tcp:localhost:80`, if no file has that name.
    fn of_word(path: &Path) -> Option<Self> {
        let (word, address) = path.to_str()?.split_once(':')?;
        let key = match word {
            "tcp" => "socket:inet",
            "unix" => "socket:unix",
            "memory" | "pipe" if address.is_empty() => word,
            _ => return None,
        };
        if !address.is_empty() && path.symlink_metadata().is_ok() {
            return None;
        }
        let facts = EndFacts::of_key(key, "")?;
        let (name, folder) = (path.display().to_string(), std::env::temp_dir());
        Some(Self { name, facts, folder, size: None, assumed: None })
    }

    fn of_open(path: &Path, fd: &OwnedFd) -> Result<Self, Errno> {
        let name = path.display().to_string();
        let stat = fstat(fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let assumed = Some("the plan is for the files in the directory");
            return Ok(Self {
                name,
                facts: file_on(fd),
                folder: path.to_owned(),
                size: None,
                assumed,
            });
        }
        let end = End::of(fd.as_fd())?;
        let file = end.kind == Kind::File;
        // This `O_PATH` descriptor has no offset, but the descriptor that a command opens will have one. The sink
        // counts as empty, because `copy` creates a new file, and `>` truncates the existing one.
        let facts =
            EndFacts { addressed: file, append: false, filled: false, ..EndFacts::of(&end) };
        let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0 && file);
        Ok(Self { name, facts, folder: folder_of(path), size, assumed: None })
    }

    fn inherited(name: &str, end: &End<'_>) -> Self {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", end.fd.as_raw_fd());
        let folder = std::fs::read_link(link).ok().map(|path| folder_of(&path));
        Self {
            name: name.to_owned(),
            facts: EndFacts::of(end),
            folder: folder.filter(|f| f.is_dir()).unwrap_or_else(|| PathBuf::from(".")),
            size: None,
            assumed: None,
        }
    }

    /// Returns text such as `big.iso (file on ext4, 1.4 GiB)`.
    pub fn describe(&self) -> String {
        let mut about = self.facts.kind.to_string();
        if let Some(fs) = &self.facts.fs {
            let _ = write!(about, " on {}", fs.name);
        }
        if self.facts.unchanging {
            about += ", cannot change";
        }
        let size = self.size.map(quantity::bytes);
        for more in size.as_deref().into_iter().chain(self.assumed) {
            let _ = write!(about, ", {more}");
        }
        format!("{} ({about})", shown(&self.name))
    }
}

/// Opens a path with `O_PATH`, which has no side effects: a FIFO does not block, and a tape does not rewind.
fn look_at(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// Returns the facts of a regular file in this directory.
fn file_on(folder: &OwnedFd) -> EndFacts {
    EndFacts { kind: Kind::File, fs: filesystem(folder).ok(), ..EndFacts::MEMORY }
}
