//! Lists of trees: no input may crash the client. Every accepted entry must be a path below the directory, in a
//! directory listed before it, and must not occur twice.

use std::{collections::HashSet, fs::File, os::fd::AsFd, sync::OnceLock};

use thalweg_serve::client::tree::{
    entry::{ListedKind, ParsedLine, parse, stays_inside},
    list::EntryList,
};
use thalweg_sys::io;

/// Runs one input.
pub fn run(text: &[u8]) {
    static FOLDER: OnceLock<File> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| File::open(std::env::temp_dir()).expect("a folder"));
    let list = EntryList::create(folder.as_fd()).expect("a file");
    let written = io::pwrite(list.fd(), text, 0);
    assert_eq!(written.unwrap_or(0), text.len());
    let checked = list.check(|| Ok(()));
    let (mut lines, mut there, mut folders) = (list.lines(), HashSet::new(), HashSet::new());
    let mut count = 0;
    while let Ok(Some(line)) = lines.next_line() {
        count += 1;
        let Ok(ParsedLine::Entry(entry)) = parse(line) else { continue };
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        assert!(entry.path.is_empty() || entry.path.split(|byte| *byte == b'/').all(is_name));
        if checked.is_ok() {
            assert!(there.insert(entry.path.clone()));
            assert!(entry.path.is_empty() || folders.contains(entry.directory()));
        }
        match &entry.kind {
            ListedKind::Directory => _ = folders.insert(entry.path.clone()),
            ListedKind::Link(target) => _ = stays_inside(entry.directory(), target),
            ListedKind::File { .. } => {}
        }
    }
    let Ok(mut backwards) = list.backwards() else { return };
    let mut back = 0;
    while let Ok(Some(_)) = backwards.next_line() {
        back += 1;
    }
    assert!(checked.is_err() || back == count);
}
