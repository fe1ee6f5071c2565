//! Writes the records of a list.

use super::{
    FORMAT, ListTotals, MAGIC, ManifestEntry, ManifestKind, Meta,
    fields::{put, put_signed},
    parse::{CHANGED, DIRECTORY, END, FILE, GROUP, LINK, LINKED, REPEATED, UNREAD},
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
        let ManifestEntry { name, kind, meta } = entry;
        let (before, is_repeated) = (self.meta, same_rights(&self.meta, meta));
        let mut tag = if is_repeated { REPEATED } else { 0 };
        tag |= match kind {
            ManifestKind::File(file) => {
                let is_changed = file.changed == (meta.mtime, meta.nanos);
                FILE | if is_changed { CHANGED } else { 0 }
                    | if file.linked_on.is_some() { LINKED } else { 0 }
            }
            ManifestKind::Directory { is_unread } => {
                DIRECTORY | if *is_unread { UNREAD } else { 0 }
            }
            ManifestKind::Link(_) => LINK,
        };
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
                put(out, target.as_bytes().len() as u64);
                out.extend_from_slice(target.as_bytes());
            }
            ManifestKind::Directory { .. } => {}
        }
        self.name.truncate(shared);
        self.name.extend_from_slice(&name[shared..]);
        self.meta = *meta;
    }

    /// Begins the group of the next directory.
    pub fn group(&mut self, out: &mut Vec<u8>) {
        *self = Self::default();
        out.push(GROUP);
    }

    /// Ends the list.
    pub fn end(out: &mut Vec<u8>, totals: &ListTotals) {
        out.push(END);
        for number in [totals.entries, totals.bytes, totals.left_out] {
            put(out, number);
        }
    }
}

/// Returns `true` if both have one mode, owner and group.
fn same_rights(one: &Meta, other: &Meta) -> bool {
    (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid)
}
