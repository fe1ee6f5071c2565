//! No text is a journal that crashes; what is read is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_tree::journal::{Journal, SIZE};

fuzz_target!(|text: &[u8]| {
    let Ok(journal) = Journal::parse(text) else { return };
    assert!(journal.done <= journal.source.size);
    let bytes = journal.to_bytes();
    assert!(bytes.len() >= SIZE && bytes.ends_with(b"\n"));
    assert_eq!(Journal::parse(&bytes).expect("its own text"), journal);
});
