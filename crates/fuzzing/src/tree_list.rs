//! Lists of trees: no input may crash the client. Every accepted entry must be a path below the directory, in a
//! directory listed before it, and must not occur twice.

use std::{
    collections::{HashSet, VecDeque},
    ffi::CString,
    fs::File,
    os::fd::AsFd,
    sync::OnceLock,
};

use thalweg_serve::{
    client::tree::{
        entry::{ListedEntry, stays_inside},
        list::EntryList,
    },
    manifest::{DirectoryContents, LONGEST_XATTRS, ListCheck, ListRecord, ManifestKind, has_room},
};
use thalweg_sys::io;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    static FOLDER: OnceLock<File> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| File::open(std::env::temp_dir()).expect("a folder"));
    let list = EntryList::create(folder.as_fd()).expect("a file");
    let written = io::pwrite(list.fd(), bytes, 0);
    assert_eq!(written.unwrap_or(0), bytes.len());
    let (mut records, mut check) = (list.records(), ListCheck::default());
    let (mut waiting, mut current) = (VecDeque::new(), Vec::new());
    let mut there = HashSet::new();
    while let Ok(Some(record)) = records.next_record() {
        if check.add(&record).is_err() {
            return;
        }
        match record {
            ListRecord::Group(_) => {
                current = waiting.pop_front().expect("a directory for the group");
            }
            ListRecord::End(totals) => {
                assert!(waiting.is_empty() && totals.entries == there.len() as u64);
            }
            ListRecord::Entry(entry) => {
                let Ok(entry) = ListedEntry::of(&current, entry) else { return };
                let is_name =
                    |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
                let has_name =
                    |(name, _): &(CString, Vec<u8>)| matches!(name.count_bytes(), 1..=255);
                assert!(
                    entry.xattrs.pairs().iter().all(has_name)
                        && has_room(&entry.xattrs, LONGEST_XATTRS)
                );
                let is_top = entry.path.is_empty();
                assert!(is_top || entry.path.split(|byte| *byte == b'/').all(is_name));
                assert!(entry.directory() == current && there.insert(entry.path.clone()));
                match &entry.kind {
                    ManifestKind::Directory(DirectoryContents::Listed) => {
                        waiting.push_back(entry.path);
                    }
                    ManifestKind::Link(target) => _ = stays_inside(&current, target),
                    _ => {}
                }
            }
        }
    }
}
