//! A sorted, packed list of directory entries: about 6 bytes plus the name per entry.

use std::cmp::Ordering;

use rustix::{fd::AsFd, fs::FileType};
use thalweg_sys::Errno;
use thalweg_tree::install::{each_entry, listing_buffer};

/// Sorted names of a directory, or of a section of it if the directory does not fit in memory.
#[derive(Debug, Default)]
pub struct NameList {
    /// Type, length and bytes of each name.
    bytes: Vec<u8>,
    /// Offset of each name in `bytes`, sorted by name.
    starts: Vec<u32>,
    /// `true` if the directory contains names after the last one.
    is_partial: bool,
}

/// Rules for reading a list.
pub struct ReadRules<'r> {
    /// `true` if names that start with a dot are included.
    pub with_hidden: bool,
    /// Only names greater than this one are included.
    pub after: &'r [u8],
    /// Maximum size of the list in bytes. It may use 1.5 times as much while it is read.
    pub room: usize,
}

/// Number of names between two calls of `check_cancelled`.
const QUESTION: usize = 1024;
/// Minimum size of a list, in bytes: enough for several names of the maximum length.
const LEAST: usize = 4 << 10;

impl NameList {
    /// Reads the smallest names greater than `rules.after`, as many as fit. Calls `check_cancelled` about every
    /// thousand names with the current size of the list in bytes. If it returns an error, the read ends.
    pub fn read(
        directory: impl AsFd,
        rules: &ReadRules<'_>,
        mut check_cancelled: impl FnMut(usize) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let room = rules.room.clamp(LEAST, u32::MAX as usize / 2);
        let mut list = Self::default();
        let mut ceiling: Option<Vec<u8>> = None;
        let mut seen = 0_usize;
        let mut cancelled = Ok(());
        each_entry(directory, &mut listing_buffer(), |entry| {
            seen += 1;
            if seen.is_multiple_of(QUESTION) {
                cancelled = check_cancelled(list.held());
            }
            let name = entry.file_name().to_bytes();
            let is_hidden = name.starts_with(b".") && !rules.with_hidden;
            let is_above = ceiling.as_deref().is_some_and(|ceiling| name > ceiling);
            if !is_hidden && !is_above && name > rules.after {
                list.push(entry.file_type(), name);
                if list.len() > room {
                    list.keep_lower_half();
                    ceiling = list.last().map(<[u8]>::to_vec);
                }
            }
            cancelled.is_ok()
        })?;
        cancelled?;
        list.sort();
        list.bytes.shrink_to_fit();
        list.starts.shrink_to_fit();
        Ok(list)
    }

    fn push(&mut self, kind: FileType, name: &[u8]) {
        self.starts.push(self.bytes.len() as u32);
        // NAME_MAX is 255 on Linux.
        let len = name.len().min(255);
        self.bytes.extend_from_slice(&[code(kind), len as u8]);
        self.bytes.extend_from_slice(&name[..len]);
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<u32>()
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.starts.sort_unstable_by(|a, b| name_at(bytes, *a).cmp(name_at(bytes, *b)));
        // The kernel may return a name twice if the directory changes during the read.
        self.starts.dedup_by(|a, b| name_at(bytes, *a) == name_at(bytes, *b));
    }

    fn keep_lower_half(&mut self) {
        self.sort();
        self.starts.truncate(self.starts.len().div_ceil(2));
        let mut kept = Vec::with_capacity(self.bytes.len() / 2);
        for start in &mut self.starts {
            let name = name_at(&self.bytes, *start);
            let entry = &self.bytes[*start as usize..][..2 + name.len()];
            *start = kept.len() as u32;
            kept.extend_from_slice(entry);
        }
        self.bytes = kept;
        self.is_partial = true;
    }

    /// Returns the number of names.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the name at this position in the sorted order, and its type as recorded in the directory.
    pub fn get(&self, place: usize) -> Option<(FileType, &[u8])> {
        let start = *self.starts.get(place)?;
        Some((kind(self.bytes[start as usize]), name_at(&self.bytes, start)))
    }

    /// Returns the position of the first name greater than this one.
    pub fn place_after(&self, name: &[u8]) -> usize {
        self.starts
            .partition_point(|start| name_at(&self.bytes, *start).cmp(name) != Ordering::Greater)
    }

    /// Returns the greatest name.
    pub fn last(&self) -> Option<&[u8]> {
        self.starts.last().map(|start| name_at(&self.bytes, *start))
    }

    /// Returns `true` if the directory contains names after the last one.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the memory that the list occupies, in bytes.
    pub fn held(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }
}

fn name_at(bytes: &[u8], start: u32) -> &[u8] {
    let start = start as usize;
    &bytes[start + 2..][..usize::from(bytes[start + 1])]
}

// The file types that a listing distinguishes.
const KINDS: [FileType; 4] =
    [FileType::Unknown, FileType::RegularFile, FileType::Directory, FileType::Symlink];

/// Returns the code of a file type. All types that are never listed share the code after the last one.
fn code(kind: FileType) -> u8 {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len()) as u8
}

fn kind(code: u8) -> FileType {
    KINDS.get(usize::from(code)).copied().unwrap_or(FileType::Fifo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeSet, ffi::OsStr, fs::File, os::unix::ffi::OsStrExt};

    fn read(place: &File, after: &[u8], room: usize) -> NameList {
        // Rewinds the directory, so that it is read again from the beginning.
        rustix::fs::seek(place, rustix::fs::SeekFrom::Start(0)).unwrap();
        let rules = ReadRules { with_hidden: false, after, room };
        NameList::read(place, &rules, |_| Ok(())).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn stretches_of_any_size_give_every_name_once_and_sorted(
            names in prop::collection::btree_set("[a-zA-Z0-9_\u{e9}]{1,60}", 0..600),
            room in 0_usize..40_000,
        ) {
            let place = tempfile::tempdir().unwrap();
            for name in &names {
                File::create(place.path().join(OsStr::from_bytes(name.as_bytes()))).unwrap();
            }
            File::create(place.path().join(".hidden")).unwrap();
            let directory = File::open(place.path()).unwrap();
            let (mut after, mut found) = (Vec::new(), Vec::new());
            loop {
                let list = read(&directory, &after, room);
                prop_assert!(list.len() <= room.max(LEAST) + 300);
                for place in 0..list.count() {
                    let (kind, name) = list.get(place).unwrap();
                    prop_assert!(matches!(kind, FileType::RegularFile | FileType::Unknown));
                    prop_assert_eq!(list.place_after(name), place + 1);
                    found.push(String::from_utf8(name.to_vec()).unwrap());
                }
                if !list.is_partial() {
                    break;
                }
                after = list.last().unwrap().to_vec();
            }
            let sorted: BTreeSet<String> = found.iter().cloned().collect();
            prop_assert!(found.is_sorted() && found.len() == sorted.len());
            prop_assert_eq!(sorted, names);
        }
    }

    #[test]
    fn reading_ends_when_it_is_cancelled() {
        let place = tempfile::tempdir().unwrap();
        for name in 0..3000 {
            File::create(place.path().join(name.to_string())).unwrap();
        }
        let directory = File::open(place.path()).unwrap();
        let rules = ReadRules { with_hidden: true, after: b"", room: 1 << 20 };
        let ended = NameList::read(&directory, &rules, |_| Err(Errno::CANCELED));
        assert_eq!(ended.map(|_| ()), Err(Errno::CANCELED));
    }
}
