//! Parses the records of a list. Accepts names of entries, not paths.

use std::ffi::CString;

use thalweg_tree::{install::EntryXattrs, sync::LONGEST_FILTER};

use super::{
    DirectoryContents, FileTag, GroupFilter, InodeId, LONGEST_NAME, ListRecord, ListTotals,
    ManifestEntry, ManifestKind, Meta, SpecialFile,
    fields::{FieldError, ListFields},
    xattrs::take_xattrs,
};

// The lowest three bits of a record's first byte: its type.
pub const END: u8 = 0;
pub const FILE: u8 = 1;
pub const DIRECTORY: u8 = 2;
pub const LINK: u8 = 3;
pub const GROUP: u8 = 4;
pub const SPECIAL: u8 = 5;
const KINDS: u8 = 7;
// The other bits of the first byte.
/// Mode, owner and group are those of the previous entry of the group.
pub const REPEATED: u8 = 8;
/// The server has no permission to read the directory.
pub const UNREAD: u8 = 16;
/// The directory is on another file system, and its entries are not listed.
pub const ELSEWHERE: u8 = 32;
/// The file has holes.
pub const SPARSE: u8 = 16;
/// The time of the last change is equal to the modification time.
pub const CHANGED: u8 = 32;
/// The entry has several names.
pub const LINKED: u8 = 64;

/// The entry has extended attributes.
pub const XATTRS: u8 = 128;
/// Flag of the end record: the number of excluded entries follows.
pub const EXCLUDING: u8 = 8;
/// Flag of a group record: the filter file of its directory follows.
pub const FILTERED: u8 = 8;

/// Longest record, in bytes: a group with a filter file, or an entry with extended attributes.
pub const LONGEST_RECORD: usize = LONGEST_FILTER + (128 << 10);
const LONGEST_TARGET: usize = 64 << 10;

/// Parses a list. A record depends on the previous entry of its group.
#[derive(Clone, Debug, Default)]
pub struct RecordParser {
    name: Vec<u8>,
    inode: u64,
    meta: Meta,
}

impl RecordParser {
    /// Parses the first record, and returns it with its length. The error is the reason why the record is invalid.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(ListRecord, usize), FieldError> {
        let mut fields = ListFields(bytes);
        let tag = fields.byte()?;
        let allowed = match tag & KINDS {
            FILE => REPEATED | SPARSE | CHANGED | LINKED | XATTRS,
            // `UNREAD` and `ELSEWHERE` exclude each other.
            DIRECTORY if tag & UNREAD != 0 => REPEATED | UNREAD | XATTRS,
            DIRECTORY => REPEATED | ELSEWHERE | XATTRS,
            LINK => REPEATED | LINKED,
            SPECIAL => REPEATED | LINKED | XATTRS,
            GROUP => FILTERED,
            END => EXCLUDING,
            _ => return Err(FieldError::Invalid("a record has an unknown type")),
        };
        if tag & !(KINDS | allowed) != 0 {
            return Err(FieldError::Invalid("a record has unknown flags"));
        }
        let record = match tag & KINDS {
            GROUP => {
                let filter = filter(tag & FILTERED != 0, &mut fields)?;
                *self = Self::default();
                ListRecord::Group(filter)
            }
            END => {
                let (entries, bytes) = (fields.number()?, fields.number()?);
                let left_out = fields.number()?;
                let excluded = if tag & EXCLUDING != 0 { fields.number()? } else { 0 };
                ListRecord::End(ListTotals { entries, bytes, left_out, excluded })
            }
            _ => ListRecord::Entry(self.entry(tag, &mut fields)?),
        };
        Ok((record, bytes.len() - fields.0.len()))
    }

    /// Parses an entry. If an error is returned, the state is unchanged.
    fn entry(&mut self, tag: u8, fields: &mut ListFields<'_>) -> Result<ManifestEntry, FieldError> {
        let shared = usize::from(fields.byte()?);
        let rest = fields.number()?;
        if shared > self.name.len() || rest > (LONGEST_NAME - shared) as u64 {
            return Err(FieldError::Invalid("the name of an entry is longer than 255 bytes"));
        }
        let rest = fields.bytes(rest as usize)?;
        let mut meta = self.meta;
        if tag & REPEATED == 0 {
            (meta.mode, meta.uid, meta.gid) = (fields.small()?, fields.small()?, fields.small()?);
        }
        meta.mtime = meta.mtime.wrapping_add(fields.signed()?);
        meta.nanos = fields.nanos()?;
        let (mut inode, mut shared_node) = (self.inode, None);
        if tag & LINKED != 0 && matches!(tag & KINDS, LINK | SPECIAL) {
            inode = inode.wrapping_add(fields.signed()? as u64);
            shared_node = Some(InodeId { device: fields.number()?, inode });
        }
        let kind = match tag & KINDS {
            FILE => {
                let size = fields.number()?;
                inode = inode.wrapping_add(fields.signed()? as u64);
                let changed = if tag & CHANGED != 0 {
                    (meta.mtime, meta.nanos)
                } else {
                    (meta.mtime.wrapping_add(fields.signed()?), fields.nanos()?)
                };
                let linked_on = if tag & LINKED != 0 { Some(fields.number()?) } else { None };
                let is_sparse = tag & SPARSE != 0;
                ManifestKind::File(FileTag { size, inode, changed, linked_on, is_sparse })
            }
            DIRECTORY if tag & UNREAD != 0 => {
                ManifestKind::Directory(DirectoryContents::Unreadable)
            }
            DIRECTORY if tag & ELSEWHERE != 0 => {
                ManifestKind::Directory(DirectoryContents::Elsewhere)
            }
            DIRECTORY => ManifestKind::Directory(DirectoryContents::Listed),
            SPECIAL => ManifestKind::Special(SpecialFile::take(fields)?),
            _ => ManifestKind::Link(target(fields)?),
        };
        let xattrs = if tag & XATTRS != 0 { take_xattrs(fields)? } else { EntryXattrs::default() };
        if meta.mode > 0o7777 {
            return Err(FieldError::Invalid("an entry has an invalid mode"));
        }
        let name = [&self.name[..shared], rest].concat();
        check_name(&name, &self.name, &kind).map_err(FieldError::Invalid)?;
        self.name.truncate(shared);
        self.name.extend_from_slice(rest);
        (self.meta, self.inode) = (meta, inode);
        Ok(ManifestEntry { name, kind, shared_node, meta, xattrs })
    }
}

fn filter(is_sent: bool, fields: &mut ListFields<'_>) -> Result<GroupFilter, FieldError> {
    if !is_sent {
        return Ok(GroupFilter::NotRequested);
    }
    match fields.number()? {
        0 => Ok(GroupFilter::Unreadable),
        length if length - 1 > LONGEST_FILTER as u64 => {
            Err(FieldError::Invalid("a filter file is longer than 1 MiB"))
        }
        length => Ok(GroupFilter::Text(fields.bytes(length as usize - 1)?.to_vec())),
    }
}

fn target(fields: &mut ListFields<'_>) -> Result<CString, FieldError> {
    let length = fields.number()?;
    if length > LONGEST_TARGET as u64 {
        return Err(FieldError::Invalid("a link target is longer than 65536 bytes"));
    }
    CString::new(fields.bytes(length as usize)?)
        .map_err(|_| FieldError::Invalid("a link target contains NUL"))
}

/// Checks the name of an entry. `before`: the previous name of the group. Names must be sorted, so that a second
/// occurrence of a name is detected.
fn check_name(name: &[u8], before: &[u8], kind: &ManifestKind) -> Result<(), &'static str> {
    match name {
        // An empty name means the listed directory itself.
        b"" if before.is_empty() && matches!(kind, ManifestKind::Directory(_)) => Ok(()),
        b"" => Err("the name of an entry is empty"),
        b"." | b".." => Err("the name of an entry is '.' or '..'"),
        name if name.contains(&b'/') => Err("the name of an entry contains a slash"),
        name if name.contains(&0) => Err("the name of an entry contains NUL"),
        name if name <= before => Err("a name is listed twice, or the names are not sorted"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::RecordWriter;
    use proptest::prelude::*;
    use rustix::fs::FileType;

    fn file(name: &[u8]) -> ManifestEntry {
        let kind = ManifestKind::File(FileTag {
            size: 3,
            inode: 7,
            changed: (1, 2),
            linked_on: None,
            is_sparse: false,
        });
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: 1, nanos: 2 };
        let (name, xattrs) = (name.to_owned(), EntryXattrs::default());
        ManifestEntry { name, kind, shared_node: None, meta, xattrs }
    }

    fn parsed(entries: &[ManifestEntry]) -> Result<Vec<ManifestEntry>, FieldError> {
        let (mut out, mut writer, mut parser) =
            (Vec::new(), RecordWriter::default(), RecordParser::default());
        for entry in entries {
            writer.entry(&mut out, entry);
        }
        let (mut rest, mut found) = (&*out, Vec::new());
        while !rest.is_empty() {
            let before = parser.clone();
            let (record, length) = parser.next(rest)?;
            for cut in 0..length {
                assert_eq!(before.clone().next(&rest[..cut]), Err(FieldError::Incomplete), "{cut}");
            }
            let ListRecord::Entry(entry) = record else { panic!("{record:?}") };
            found.push(entry);
            rest = &rest[length..];
        }
        Ok(found)
    }

    #[test]
    fn a_name_is_one_component_and_follows_the_one_before() {
        let long = [b'x'; 256];
        for wrong in [&b""[..], b"/", b"/etc", b"a/", b"a/b", b"..", b".", b"a\0", &long] {
            assert!(matches!(parsed(&[file(wrong)]), Err(FieldError::Invalid(_))), "{wrong:?}");
        }
        for wrong in [&[&b"a"[..], b"a"], &[b"b", b"a"], &[b"ab", b"a"]] {
            let entries = wrong.map(file);
            assert!(matches!(parsed(&entries), Err(FieldError::Invalid(_))), "{wrong:?}");
        }
        let good = [&b".hidden"[..], b"a", b"ab", b"b\n", &b"\xff".repeat(255)].map(file);
        assert_eq!(parsed(&good), Ok(good.to_vec()));
    }

    #[test]
    fn unknown_types_and_flags_and_impossible_numbers_are_refused() {
        for tag in 0..=255 {
            let bytes = [&[tag, 0, 1, b'a'][..], &[0; 64]].concat();
            let flags = tag & !KINDS;
            let is_known = match tag & KINDS {
                FILE => true,
                DIRECTORY => {
                    flags & LINKED == 0 && flags & (UNREAD | ELSEWHERE) != UNREAD | ELSEWHERE
                }
                LINK => flags & !(REPEATED | LINKED) == 0,
                GROUP | END => flags & !REPEATED == 0,
                // The type of a special file is the byte after the times. Here it is 0, which is not a type.
                _ => false,
            };
            let is_parsed = RecordParser::default().next(&bytes).is_ok();
            assert_eq!(is_parsed, is_known, "{tag}");
        }
        let mut wrong = file(b"a");
        wrong.meta.mode = 0o10000;
        assert!(parsed(&[wrong]).is_err());
        // The prefix of a previous name, although there is no previous name.
        assert!(RecordParser::default().next(&[FILE, 1, 1, b'a', 0, 0]).is_err());
    }

    fn entries() -> impl Strategy<Value = Vec<ManifestEntry>> {
        let kind = prop_oneof![
            (any::<[u64; 2]>(), any::<i64>(), 0..1_000_000_000_u32, any::<Option<u64>>()).prop_map(
                |([size, inode], changed, nanos, linked_on)| {
                    ManifestKind::File(FileTag {
                        size,
                        inode,
                        changed: (changed, nanos),
                        linked_on,
                        is_sparse: inode.is_multiple_of(2),
                    })
                }
            ),
            prop_oneof![
                Just(DirectoryContents::Listed),
                Just(DirectoryContents::Unreadable),
                Just(DirectoryContents::Elsewhere)
            ]
            .prop_map(ManifestKind::Directory),
            "[^\0]{0,300}".prop_map(|target| ManifestKind::Link(CString::new(target).unwrap())),
            (1..13_u32, any::<u32>()).prop_filter_map("no special file", |(kind, device)| {
                let kind = FileType::from_raw_mode(kind << 12);
                SpecialFile::of(kind, device.into()).map(ManifestKind::Special)
            }),
        ];
        let meta = (0..0o10000_u32, 0..3_u32, any::<u32>(), any::<i64>(), 0..1_000_000_000_u32);
        let pairs = prop::collection::btree_map(
            "[^\0]{1,60}",
            prop::collection::vec(any::<u8>(), 0..300),
            0..3,
        );
        let node = any::<Option<[u64; 2]>>();
        let entry = ("[a-c]{1,8}", kind, node, meta, pairs).prop_map(
            |(name, kind, node, (mode, uid, gid, mtime, nanos), pairs)| {
                let is_link = matches!(kind, ManifestKind::Link(_));
                let pairs = pairs.into_iter().filter(|_| !is_link);
                let pairs =
                    pairs.map(|(name, value)| (CString::new(name).unwrap(), value)).collect();
                let is_node = matches!(kind, ManifestKind::Link(_) | ManifestKind::Special(_));
                let node = node.filter(|_| is_node);
                ManifestEntry {
                    xattrs: EntryXattrs::of_pairs(pairs),
                    shared_node: node.map(|[device, inode]| InodeId { device, inode }),
                    name: name.into_bytes(),
                    kind,
                    meta: Meta { mode, uid, gid, mtime, nanos },
                }
            },
        );
        prop::collection::vec(entry, 1..20).prop_map(|mut entries| {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            entries.dedup_by(|one, other| one.name == other.name);
            entries
        })
    }

    proptest! {
        #[test]
        fn every_entry_is_read_as_it_was_written(entries in entries()) {
            prop_assert_eq!(parsed(&entries), Ok(entries));
        }
    }
}
