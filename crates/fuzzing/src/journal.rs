//! Journals: no input may crash the parser. Writing what was read must give the same journal, also through a file.

use std::{fs, fs::File, os::unix::fs::PermissionsExt};

use thalweg_tree::journal::{Journal, JournalKeeper, MOST, earlier};

/// Runs one input.
pub fn run(text: &[u8]) {
    let journal = match Journal::parse(text) {
        Ok(journal) => journal,
        Err(error) => return drop(error.to_string()),
    };
    assert!(journal.done.end() <= journal.source.size());
    let bytes = journal.to_bytes(MOST);
    assert!(bytes.len() >= MOST && bytes.ends_with(b"\n"));
    through_a_file(&journal, text);
    let Ok(again) = Journal::parse(&bytes) else {
        // Escapes made the journal longer than the limit.
        return assert!(bytes.len() > MOST);
    };
    assert_eq!(again.source, journal.source);
    assert!(again.done.bytes() <= journal.done.bytes());
}

/// Reads a journal that an earlier run left, and replaces it.
fn through_a_file(journal: &Journal, text: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("journal");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    let dir = File::open(place.path()).expect("a directory");
    let mut keeper = JournalKeeper::new(dir, c"journal".to_owned(), journal.source.clone(), true);
    let found = keeper.earlier().expect("a journal").expect("a valid journal");
    assert_eq!(&found, journal);
    keeper.note_ranges(&journal.done);
    keeper.write();
    match keeper.earlier() {
        Some(written) => {
            let written = written.expect("its own journal");
            assert!(written.is_of_this_boot() && written.source == journal.source);
            assert!(written.done.bytes() <= journal.done.bytes());
        }
        // The new journal exceeds the limit, so no file may remain.
        None => assert!(!path.exists()),
    }
    keeper.note(journal.source.size() / 2);
    keeper.forget().expect("the file");
    let dir = File::open(place.path()).expect("a directory");
    assert!(!path.exists() && earlier(std::os::fd::AsFd::as_fd(&dir), c"journal").is_none());
}
