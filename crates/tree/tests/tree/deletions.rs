//! Tests the deletion of a sync if the source cannot be listed completely.

use std::{collections::HashMap, fs};
use thalweg_tree::{
    Error, Refusal,
    sync::{CopyOutcome, DeleteOptions, DeleteRefusal, SourceListing, SourceNames, delete_extra},
};

/// A source with the directory `d`, which cannot be listed.
struct HalfListed;

impl SourceNames for HalfListed {
    fn list(&self, directory: &[u8]) -> Result<SourceListing, Error> {
        if directory == b"d" {
            return Err(Error::Refused { path: "d".into(), reason: Refusal::Replaced });
        }
        let names = HashMap::from([(b"d".to_vec().into_boxed_slice(), true)]);
        Ok(SourceListing { names, ..SourceListing::default() })
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

#[test]
fn a_directory_that_fails_to_be_listed_after_the_copy_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    fs::create_dir(root.join("d")).unwrap();
    for name in ["d/kept", "extra"] {
        fs::write(root.join(name), "x").unwrap();
    }
    // `CopyOutcome::default()` means that the copy before the deletion had no errors.
    let delete = |force| {
        let options = DeleteOptions { force, ..DeleteOptions::default() };
        delete_extra(root, &HalfListed, &options, &CopyOutcome::default(), &()).unwrap()
    };
    let report = delete(false);
    assert!(matches!(report.refused, Some(DeleteRefusal::Unlisted(_))), "{report:?}");
    assert!(root.join("d/kept").exists() && root.join("extra").exists());
    let report = delete(true);
    assert_eq!((report.deleted, report.errors.len()), (1, 1), "{report:?}");
    assert!(root.join("d/kept").exists() && !root.join("extra").exists());
}
