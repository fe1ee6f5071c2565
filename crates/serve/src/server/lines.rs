//! The list of a directory tree, as the body of an answer.

use std::ffi::{OsStr, OsString};

use rustix::fs::Stat;
use thalweg_tree::install::EntryXattrs;

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES, TURN_ENTRIES},
    tasks::HelperLane,
    version::FileVersion,
    walk::{TreeWalk, WalkEntry, WalkKind, WalkStep},
};
use crate::manifest::{
    DirectoryContents, FileTag, GroupFilter, InodeId, ListTotals, ManifestEntry, ManifestKind,
    Meta, RecordWriter,
};

/// Produces the list of a tree, a few entries per turn.
pub struct ManifestLines {
    // The top directory, until its entry is written.
    top: Option<WalkEntry>,
    tree: TreeWalk,
    /// `true` if links are followed, so that any file may have several names in the list.
    copies_links: bool,
    writer: RecordWriter,
    totals: ListTotals,
}

impl ManifestLines {
    /// Creates the list of `tree`. `top`: metadata of the top directory.
    pub fn of(tree: TreeWalk, top: Stat, xattrs: EntryXattrs) -> Self {
        let copies_links = tree.copies_links();
        let (name, kind) = (OsString::new(), WalkKind::Directory);
        let top = WalkEntry { name, kind, stat: top, xattrs };
        let (writer, totals) = (RecordWriter::default(), ListTotals::default());
        Self { top: Some(top), tree, copies_links, writer, totals }
    }

    /// Returns the entry of a file.
    pub fn of_file(name: &OsStr, stat: &Stat, xattrs: EntryXattrs) -> ManifestEntry {
        let kind = ManifestKind::File(tag(stat));
        let (name, meta) = (name.as_encoded_bytes().to_vec(), meta(stat));
        ManifestEntry { name, kind, shared_node: None, meta, xattrs }
    }

    /// Returns the list of a directory with only this entry. The directory has the owner and the time of the entry. If
    /// the entry is `None`, because it cannot be read, the list counts it as left out.
    pub fn of_entry(entry: Option<&ManifestEntry>) -> Vec<u8> {
        let mut list = Vec::new();
        let mut writer = RecordWriter::default();
        let kind = ManifestKind::Directory(DirectoryContents::Listed);
        let meta = Meta { mode: 0o755, ..entry.map_or_else(Meta::default, |entry| entry.meta) };
        let (name, xattrs) = (Vec::new(), EntryXattrs::default());
        let top = ManifestEntry { name, kind, shared_node: None, meta, xattrs };
        let mut totals = ListTotals { entries: 1, left_out: 1, ..ListTotals::default() };
        RecordWriter::begin(&mut list);
        writer.entry(&mut list, &top);
        writer.group(&mut list, &GroupFilter::NotRequested);
        if let Some(entry) = entry {
            writer.entry(&mut list, entry);
            (totals.entries, totals.left_out) = (2, 0);
            if let ManifestKind::File(file) = &entry.kind {
                totals.bytes = file.size;
            }
        }
        RecordWriter::end(&mut list, &totals);
        list
    }

    fn write(&mut self, entry: WalkEntry, list: &mut Vec<u8>) {
        let is_node = matches!(entry.kind, WalkKind::Link(_) | WalkKind::Special(_));
        let WalkEntry { name, kind, stat, xattrs } = entry;
        let shared_node = (is_node && stat.st_nlink > 1).then_some(InodeId::of(&stat));
        let kind = match kind {
            WalkKind::Directory => ManifestKind::Directory(DirectoryContents::Listed),
            WalkKind::Shut => ManifestKind::Directory(DirectoryContents::Unreadable),
            WalkKind::Elsewhere => ManifestKind::Directory(DirectoryContents::Elsewhere),
            WalkKind::File => {
                let linked_on = self.copies_links.then_some(stat.st_dev);
                let tag = tag(&stat);
                ManifestKind::File(FileTag { linked_on: tag.linked_on.or(linked_on), ..tag })
            }
            WalkKind::Link(target) => ManifestKind::Link(target),
            WalkKind::Special(special) => ManifestKind::Special(special),
        };
        self.totals.entries += 1;
        if let ManifestKind::File(file) = &kind {
            self.totals.bytes += file.size;
        }
        let (name, meta) = (name.into_encoded_bytes(), meta(&stat));
        self.writer.entry(list, &ManifestEntry { name, kind, shared_node, meta, xattrs });
    }

    /// Writes entries until the turn is over. Returns `true` if the end of the list is written.
    fn fill(&mut self, turn: &SupplyTurn<'_>, list: &mut Vec<u8>) -> Result<bool, String> {
        if let Some(top) = self.top.take() {
            RecordWriter::begin(list);
            self.write(top, list);
        }
        for _ in 0..TURN_ENTRIES {
            match self.tree.next(turn)? {
                WalkStep::Entry(entry) => self.write(entry, list),
                WalkStep::Enter(filter) => self.writer.group(list, &filter),
                WalkStep::LeftOut(_) => self.totals.left_out += 1,
                WalkStep::Excluded => self.totals.excluded += 1,
                WalkStep::Later => return Ok(false),
                WalkStep::End => {
                    RecordWriter::end(list, &self.totals);
                    return Ok(true);
                }
            }
            if list.len() >= TURN_BYTES {
                break;
            }
        }
        Ok(false)
    }
}

fn tag(stat: &Stat) -> FileTag {
    let linked_on = (stat.st_nlink > 1).then_some(stat.st_dev);
    // st_blocks counts units of 512 bytes (stat(2)).
    let is_sparse = stat.st_blocks.saturating_mul(512) < stat.st_size;
    FileTag { linked_on, is_sparse, ..FileVersion::of(stat).tag() }
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
        let mut list = Vec::new();
        let is_last = self.fill(turn, &mut list);
        self.tree.rest();
        Ok(BodyPiece { is_last: is_last?, parts: vec![BodyPart::Bytes(list)] })
    }

    fn lane(&self) -> HelperLane {
        self.tree.lane()
    }

    fn held(&self) -> u64 {
        self.tree.held()
    }
}
