//! A directory listing as JSON or HTML, produced piece by piece. Directories come first, then files, each sorted by
//! name.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use thalweg_sys::Errno;

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES, TURN_ENTRIES},
    entry::{ListingEntry, ListingKind},
    name_cache::{NameCursor, NameLookup},
    open::kind,
    page,
    site::ServedSite,
    tasks::HelperLane,
    version::FileVersion,
};
use crate::manifest::encoded;

/// Opens a directory for reading its entries.
pub fn open(at: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Returns the metadata of a directory entry, without following a symbolic link.
pub fn stat(directory: impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns `true` unless the permissions forbid reading the subdirectory `name`. Other errors are detected when it is
/// read.
pub fn may_be_read(directory: impl AsFd, name: &OsStr) -> bool {
    !matches!(open(directory, name), Err(Errno::ACCESS | Errno::PERM))
}

/// Output format of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingFormat {
    Json,
    Page,
}

/// A listing in progress.
pub struct Listing {
    site: Arc<ServedSite>,
    path: PathBuf,
    directory: OwnedFd,
    format: ListingFormat,
    /// Type of the entries that are being listed now.
    pass: ListingKind,
    cursor: NameCursor,
    lane: HelperLane,
    has_begun: bool,
    has_entries: bool,
}

/// Maximum number of entries of a listing that a worker produces without a helper.
const AT_HAND: usize = 128;
// Maximum number of names that are skipped in a turn. Skipping a name needs no system call.
const TURN_NAMES: usize = 64 << 10;

impl Listing {
    /// Creates the listing of an open directory; `path` is relative to the root.
    pub fn of(
        site: Arc<ServedSite>,
        path: PathBuf,
        directory: OwnedFd,
        format: ListingFormat,
    ) -> Self {
        let lane = HelperLane::list(&directory);
        let cursor = NameCursor::default();
        let (pass, has_begun, has_entries) = (ListingKind::Directory, false, false);
        Self { site, path, directory, format, pass, cursor, lane, has_begun, has_entries }
    }

    /// Returns the entry that a request for the name would find. Symbolic links are followed. Returns `None` if the
    /// entry is not served.
    fn entry(&self, name: &OsStr) -> Option<ListingEntry> {
        let stat = stat(&self.directory, name).ok()?;
        let is_link = kind(&stat) == FileType::Symlink;
        let stat = if is_link { self.site.root.stat(&self.path.join(name)).ok()? } else { stat };
        let (is, slash) = match kind(&stat) {
            FileType::Directory => (ListingKind::Directory, "/"),
            FileType::RegularFile => (ListingKind::File, ""),
            _ => return None,
        };
        let version = FileVersion::of(&stat);
        Some(ListingEntry {
            name: name.to_string_lossy().into_owned(),
            path: encoded(Path::new(name)) + slash,
            kind: is,
            size: (is == ListingKind::File).then_some(version.size),
            mtime: version.seconds(),
        })
    }

    /// Returns `true` if an entry can belong to the type that is being listed. `kind`: its type according to the
    /// directory (`d_type`).
    fn may_be_listed(&self, kind: FileType) -> bool {
        match kind {
            FileType::Unknown | FileType::Symlink => true,
            FileType::Directory => self.pass == ListingKind::Directory,
            FileType::RegularFile => self.pass == ListingKind::File,
            _ => false,
        }
    }

    fn write(&mut self, entry: &ListingEntry, text: &mut Vec<u8>) -> Result<(), String> {
        match self.format {
            ListingFormat::Page => text.extend_from_slice(page::row(entry).as_bytes()),
            ListingFormat::Json => {
                if self.has_entries {
                    text.push(b',');
                }
                serde_json::to_writer(text, entry).map_err(|error| error.to_string())?;
            }
        }
        self.has_entries = true;
        Ok(())
    }

    fn begin(&mut self, text: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        match self.format {
            ListingFormat::Page => {
                text.extend_from_slice(page::top(&self.site.root.name, &self.path).as_bytes());
            }
            ListingFormat::Json => text.push(b'['),
        }
    }

    fn end(&self, text: &mut Vec<u8>) {
        match self.format {
            ListingFormat::Page => text.extend_from_slice(page::BOTTOM.as_bytes()),
            ListingFormat::Json => text.push(b']'),
        }
    }

    /// Adds entries until the turn is over. Returns `true` if all entries are listed.
    fn fill(&mut self, turn: &SupplyTurn<'_>, text: &mut Vec<u8>) -> Result<bool, String> {
        let (mut looked_at, mut passed) = (0, 0);
        loop {
            let names = self.site.names.names(
                &self.directory,
                &mut self.cursor,
                turn.may_sort,
                turn.check_cancelled,
            );
            let list = match names {
                Ok(NameLookup::Listed(list)) => list,
                Ok(NameLookup::Large) => {
                    self.lane = HelperLane::sort(&self.directory);
                    return Ok(false);
                }
                Err(errno) => return Err(failed(errno)),
            };
            self.lane = HelperLane::list(&self.directory);
            self.begin(text);
            let first = list.place_after(&self.cursor.after);
            for place in first..list.count() {
                let is_over = looked_at >= TURN_ENTRIES || passed >= TURN_NAMES;
                if is_over || text.len() >= TURN_BYTES {
                    // This name is not used yet, so the cursor moves to the name before it.
                    self.move_to(list.get(place.wrapping_sub(1)));
                    return Ok(false);
                }
                let Some((kind, name)) = list.get(place) else { break };
                passed += 1;
                if self.may_be_listed(kind) {
                    looked_at += 1;
                    let entry = self.entry(OsStr::from_bytes(name));
                    if let Some(entry) = entry.filter(|entry| entry.kind == self.pass) {
                        self.write(&entry, text)?;
                    }
                }
            }
            if list.is_partial() {
                self.move_to(list.last().map(|name| (FileType::Unknown, name)));
            } else if self.pass == ListingKind::Directory {
                self.pass = ListingKind::File;
                self.cursor.after.clear();
            } else {
                return Ok(true);
            }
        }
    }

    fn move_to(&mut self, last: Option<(FileType, &[u8])>) {
        if let Some((_, name)) = last {
            self.cursor.after.clear();
            self.cursor.after.extend_from_slice(name);
        }
    }
}

fn failed(errno: Errno) -> String {
    format!("cannot read the directory: {}", std::io::Error::from(errno))
}

impl Supply for Listing {
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String> {
        let mut text = Vec::new();
        let is_last = self.fill(turn, &mut text)?;
        if is_last {
            self.end(&mut text);
        }
        Ok(BodyPiece { parts: vec![BodyPart::Bytes(text)], is_last })
    }

    fn lane(&self) -> HelperLane {
        self.lane
    }

    fn is_at_hand(&self) -> bool {
        !self.has_begun && self.site.names.is_at_hand(&self.directory, AT_HAND)
    }
}
