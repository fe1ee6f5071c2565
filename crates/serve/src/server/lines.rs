//! A tree as lines of a manifest.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::fs::Stat;

use super::{
    body::{Part, Supply},
    version::Version,
    walk::{Entry, Kind, Tree},
};
use crate::manifest::{Line, Meta, encoded};

/// The lines of a tree, some at a time.
pub struct Lines {
    // The folder itself, until its line is made.
    top: Option<Stat>,
    tree: Tree,
    entries: u64,
    bytes: u64,
    left_out: u64,
    is_over: bool,
}

// Lines that are made before the other connections have their turn.
const SOME: usize = 256;

impl Lines {
    /// Those of this tree, below a folder that looks so.
    pub fn of(tree: Tree, top: Stat) -> Self {
        Self { top: Some(top), tree, entries: 0, bytes: 0, left_out: 0, is_over: false }
    }

    fn line(&mut self, entry: &Entry) -> Line {
        let (path, meta) = (encoded(&entry.path), meta(&entry.stat));
        self.entries += 1;
        match &entry.kind {
            Kind::Folder => Line::Folder { path, meta, unread: false },
            Kind::Shut => Line::Folder { path, meta, unread: true },
            Kind::File => {
                let version = Version::of(&entry.stat);
                self.bytes += version.size;
                let etag = version.etag(SystemTime::now());
                Line::File { path, size: version.size, meta, etag }
            }
            Kind::Link(target) => {
                let target = encoded(Path::new(OsStr::from_bytes(target)));
                Line::Link { path, target, meta }
            }
        }
    }

    /// The next one; the last tells the sums.
    fn next_line(&mut self) -> Option<Line> {
        if let Some(stat) = self.top.take() {
            let kind = Kind::Folder;
            return Some(self.line(&Entry { path: PathBuf::new(), kind, stat }));
        }
        loop {
            return match self.tree.next() {
                Some(Ok(entry)) => Some(self.line(&entry)),
                Some(Err(_)) => {
                    self.left_out += 1;
                    continue;
                }
                None if self.is_over => None,
                None => {
                    self.is_over = true;
                    let Self { entries, bytes, left_out, .. } = *self;
                    Some(Line::End { entries, bytes, left_out })
                }
            };
        }
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
        let mut text = Vec::new();
        for _ in 0..SOME {
            let Some(line) = self.next_line() else { break };
            serde_json::to_writer(&mut text, &line).map_err(|error| error.to_string())?;
            text.push(b'\n');
        }
        Ok(if text.is_empty() { None } else { Some(vec![Part::Bytes(text)]) })
    }
}
