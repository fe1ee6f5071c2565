//! Journals: no input may crash the parser. Writing what was read must give the same journal.

use thalweg_tree::journal::{Journal, MOST};

/// Runs one input.
pub fn run(text: &[u8]) {
    let Ok(journal) = Journal::parse(text) else { return };
    assert!(journal.done.end() <= journal.source.size());
    let bytes = journal.to_bytes(MOST);
    assert!(bytes.len() >= MOST && bytes.ends_with(b"\n"));
    let Ok(again) = Journal::parse(&bytes) else {
        // Escapes made it longer than the limit.
        return assert!(bytes.len() > MOST);
    };
    assert_eq!(again.source, journal.source);
    assert!(again.done.bytes() <= journal.done.bytes());
}
