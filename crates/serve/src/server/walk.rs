//! A tree, folder by folder, as lines of a manifest.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use rustix::fs::{FileType, Stat};

use super::{
    answer::Site,
    body::{Part, Supply},
    listing::Folder,
    open::Found,
    version::Version,
};
use crate::manifest::{Line, Meta, encoded};

/// The lines of a tree, a folder at a time. Links are listed, not followed.
pub struct Lines {
    site: Arc<Site>,
    top: PathBuf,
    // Below the top, and not read yet.
    folders: VecDeque<PathBuf>,
    entries: u64,
    bytes: u64,
    left_out: u64,
    is_over: bool,
}

impl Lines {
    /// Those of the folder at this path.
    pub fn of(site: Arc<Site>, top: PathBuf) -> Self {
        let folders = VecDeque::from([PathBuf::new()]);
        Self { site, top, folders, entries: 0, bytes: 0, left_out: 0, is_over: false }
    }

    /// The lines of one folder.
    fn folder(&mut self, below: &Path) -> Vec<Line> {
        let found = self.site.root.find(&self.top.join(below));
        let Ok(Found::Folder(fd)) = found else { return self.leave_out() };
        let Ok(folder) = Folder::read(&fd, self.site.hidden) else { return self.leave_out() };
        let mut lines = Vec::new();
        for name in &folder.names {
            match self.line(&folder, below, name) {
                Some(line) => lines.push(line),
                None => self.left_out += 1,
            }
        }
        self.entries += lines.len() as u64;
        lines
    }

    fn leave_out(&mut self) -> Vec<Line> {
        self.left_out += 1;
        Vec::new()
    }

    /// The line of one entry; `None` for what is not served.
    fn line(&mut self, folder: &Folder, below: &Path, name: &OsStr) -> Option<Line> {
        let stat = folder.stat(name).ok()?;
        let (full, meta) = (below.join(name), meta(&stat));
        let path = encoded(&full);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let version = Version::of(&stat);
                self.bytes += version.size;
                let etag = version.etag(SystemTime::now());
                Some(Line::File { path, size: version.size, meta, etag })
            }
            FileType::Directory => {
                self.folders.push_back(full);
                Some(Line::Folder { path, meta })
            }
            FileType::Symlink => {
                let target = folder.link(name).ok()?;
                let target = encoded(Path::new(OsStr::from_bytes(&target)));
                Some(Line::Link { path, target, meta })
            }
            _ => None,
        }
    }

    fn end(&self) -> Line {
        Line::End { entries: self.entries, bytes: self.bytes, left_out: self.left_out }
    }
}

fn meta(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: stat.st_mtime,
        nanos: stat.st_mtime_nsec as u32,
    }
}

impl Supply for Lines {
    fn next(&mut self) -> Result<Option<Vec<Part>>, String> {
        let lines = match self.folders.pop_front() {
            Some(below) => self.folder(&below),
            None if self.is_over => return Ok(None),
            None => {
                self.is_over = true;
                vec![self.end()]
            }
        };
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, &line).map_err(|error| error.to_string())?;
            text.push(b'\n');
        }
        Ok(Some(vec![Part::Bytes(text)]))
    }
}
