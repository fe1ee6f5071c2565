//! Writes the records of a list.

use super::{
    DirectoryContents, FORMAT, GroupFilter, InodeId, ListTotals, MAGIC, ManifestEntry,
    ManifestKind, Meta,
    fields::{put, put_signed},
    parse::{
        CHANGED, DIRECTORY, ELSEWHERE, END, EXCLUDING, FILE, FILTERED, GROUP, LINK, LINKED,
        REPEATED, SPARSE, SPECIAL, UNREAD, XATTRS,
    },
    xattrs::put_xattrs,
};

/// Writes a list. A record depends on the previous entry of its group.
#[derive(Clone, Debug, Default)]
pub struct RecordWriter {
    name: Vec<u8>,
    inode: u64,
    meta: Meta,
}

impl RecordWriter {
    /// Begins a list.
    pub fn begin(out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.push(FORMAT);
    }

    /// Writes an entry of the current group.
    pub fn entry(&mut self, out: &mut Vec<u8>, entry: &ManifestEntry) {
        let ManifestEntry { name, kind, shared_node, meta, xattrs } = entry;
        let (before, is_repeated) = (self.meta, same_rights(&self.meta, meta));
        let tag = tag(entry) | if is_repeated { REPEATED } else { 0 };
        let shared = std::iter::zip(name, &self.name).take_while(|(one, other)| one == other);
        let shared = shared.count().min(255);
        out.extend_from_slice(&[tag, shared as u8]);
        put(out, (name.len() - shared) as u64);
        out.extend_from_slice(&name[shared..]);
        if !is_repeated {
            put(out, meta.mode.into());
            put(out, meta.uid.into());
            put(out, meta.gid.into());
        }
        put_signed(out, meta.mtime.wrapping_sub(before.mtime));
        out.extend_from_slice(&meta.nanos.to_le_bytes());
        match kind {
            ManifestKind::File(file) => {
                put(out, file.size);
                put_signed(out, file.inode.wrapping_sub(self.inode) as i64);
                if tag & CHANGED == 0 {
                    put_signed(out, file.changed.0.wrapping_sub(meta.mtime));
                    out.extend_from_slice(&file.changed.1.to_le_bytes());
                }
                if let Some(device) = file.linked_on {
                    put(out, device);
                }
                self.inode = file.inode;
            }
            ManifestKind::Link(target) => {
                self.shared_node(out, *shared_node);
                put(out, target.as_bytes().len() as u64);
                out.extend_from_slice(target.as_bytes());
            }
            ManifestKind::Special(special) => {
                self.shared_node(out, *shared_node);
                special.put(out);
            }
            ManifestKind::Directory(_) => {}
        }
        if !xattrs.is_empty() {
            put_xattrs(out, xattrs);
        }
        self.name.truncate(shared);
        self.name.extend_from_slice(&name[shared..]);
        self.meta = *meta;
    }

    fn shared_node(&mut self, out: &mut Vec<u8>, node: Option<InodeId>) {
        let Some(InodeId { device, inode }) = node else { return };
        put_signed(out, inode.wrapping_sub(self.inode) as i64);
        put(out, device);
        self.inode = inode;
    }

    /// Begins the group of the next directory.
    pub fn group(&mut self, out: &mut Vec<u8>, filter: &GroupFilter) {
        *self = Self::default();
        match filter {
            GroupFilter::NotRequested => out.push(GROUP),
            GroupFilter::Unreadable => out.extend([GROUP | FILTERED, 0]),
            GroupFilter::Text(text) => {
                out.push(GROUP | FILTERED);
                put(out, text.len() as u64 + 1);
                out.extend_from_slice(text);
            }
        }
    }

    /// Ends the list.
    pub fn end(out: &mut Vec<u8>, totals: &ListTotals) {
        let ListTotals { entries, bytes, left_out, excluded } = *totals;
        out.push(END | if excluded > 0 { EXCLUDING } else { 0 });
        for number in [entries, bytes, left_out] {
            put(out, number);
        }
        if excluded > 0 {
            put(out, excluded);
        }
    }
}

/// Returns the first byte of an entry, without [`REPEATED`].
fn tag(entry: &ManifestEntry) -> u8 {
    let ManifestEntry { kind, meta, xattrs, .. } = entry;
    let kind = match kind {
        ManifestKind::File(file) => {
            let is_changed = file.changed == (meta.mtime, meta.nanos);
            FILE | if is_changed { CHANGED } else { 0 } | if file.is_sparse { SPARSE } else { 0 }
        }
        ManifestKind::Directory(DirectoryContents::Listed) => DIRECTORY,
        ManifestKind::Directory(DirectoryContents::Unreadable) => DIRECTORY | UNREAD,
        ManifestKind::Directory(DirectoryContents::Elsewhere) => DIRECTORY | ELSEWHERE,
        ManifestKind::Link(_) => LINK,
        ManifestKind::Special(_) => SPECIAL,
    };
    let is_linked = entry.shared_inode().is_some();
    kind | if is_linked { LINKED } else { 0 } | if xattrs.is_empty() { 0 } else { XATTRS }
}

/// Returns `true` if both have equal modes, owners and groups.
fn same_rights(one: &Meta, other: &Meta) -> bool {
    (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid)
}
