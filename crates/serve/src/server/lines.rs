//! A directory tree as the lines of a manifest.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::fs::Stat;

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES, TURN_ENTRIES},
    tasks::HelperLane,
    version::FileVersion,
    walk::{TreeWalk, WalkEntry, WalkKind, WalkStep},
};
use crate::manifest::{ManifestLine, Meta, encoded};

/// Produces the manifest of a tree, a few lines per turn.
pub struct ManifestLines {
    // Metadata of the top directory, until its line is written.
    top: Option<Stat>,
    tree: TreeWalk,
    entries: u64,
    bytes: u64,
    left_out: u64,
}

impl ManifestLines {
    /// Creates the manifest of `tree`. `top`: metadata of the top directory.
    pub fn of(tree: TreeWalk, top: Stat) -> Self {
        Self { top: Some(top), tree, entries: 0, bytes: 0, left_out: 0 }
    }

    /// Returns the line of a single file.
    pub fn of_file(path: &Path, stat: &Stat) -> ManifestLine {
        let version = FileVersion::of(stat);
        let (path, etag) = (encoded(path), version.etag(SystemTime::now()));
        ManifestLine::File { path, size: version.size, meta: meta(stat), etag }
    }

    fn line(&mut self, entry: &WalkEntry) -> ManifestLine {
        let (path, meta) = (encoded(&entry.path), meta(&entry.stat));
        self.entries += 1;
        match &entry.kind {
            WalkKind::Directory => ManifestLine::Directory { path, meta, unread: false },
            WalkKind::Shut => ManifestLine::Directory { path, meta, unread: true },
            WalkKind::File => {
                let line = Self::of_file(&entry.path, &entry.stat);
                if let ManifestLine::File { size, .. } = line {
                    self.bytes += size;
                }
                line
            }
            WalkKind::Link(target) => {
                let target = encoded(Path::new(OsStr::from_bytes(target)));
                ManifestLine::Link { path, target, meta }
            }
        }
    }

    /// Writes lines until the turn is over. Returns `true` if the last line, which holds the totals, is written.
    fn fill(&mut self, turn: &SupplyTurn<'_>, text: &mut Vec<u8>) -> Result<bool, String> {
        if let Some(stat) = self.top.take() {
            let kind = WalkKind::Directory;
            let line = self.line(&WalkEntry { path: PathBuf::new(), kind, stat });
            write(&line, text)?;
        }
        for _ in 0..TURN_ENTRIES {
            match self.tree.next(turn)? {
                WalkStep::Entry(entry) => {
                    let line = self.line(&entry);
                    write(&line, text)?;
                }
                WalkStep::LeftOut(_) => self.left_out += 1,
                WalkStep::Later => return Ok(false),
                WalkStep::End => {
                    let Self { entries, bytes, left_out, .. } = *self;
                    write(&ManifestLine::End { entries, bytes, left_out }, text)?;
                    return Ok(true);
                }
            }
            if text.len() >= TURN_BYTES {
                break;
            }
        }
        Ok(false)
    }
}

fn write(line: &ManifestLine, text: &mut Vec<u8>) -> Result<(), String> {
    serde_json::to_writer(&mut *text, line).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(())
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

impl Supply for ManifestLines {
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String> {
        let mut text = Vec::new();
        let is_last = self.fill(turn, &mut text);
        self.tree.rest();
        Ok(BodyPiece { is_last: is_last?, parts: vec![BodyPart::Bytes(text)] })
    }

    fn lane(&self) -> HelperLane {
        self.tree.lane()
    }

    fn held(&self) -> u64 {
        self.tree.held()
    }
}
