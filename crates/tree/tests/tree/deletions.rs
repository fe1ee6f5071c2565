//! Tests the deletion of a sync if the source cannot be listed completely, and the copy after the deletion.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use thalweg_tree::{
    CopyOptions, Ending, Error, Events, Hash, Preserve, Refusal,
    sync::{
        CopyOutcome, DeleteOptions, DeleteRefusal, SourceListing, SourceNames, SyncOptions,
        delete_extra, sync,
    },
};

use crate::support::{large, noise};

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

/// Appends to a source during its copy, if the directory that it replaces does not exist any more.
struct LateChange {
    source: PathBuf,
    replaced: PathBuf,
}

impl Events for LateChange {
    fn current(&self, source: &Path) {
        if source == self.source && !self.replaced.exists() {
            let mut file = fs::File::options().append(true).open(source).unwrap();
            file.write_all(b"more").unwrap();
        }
    }
}

#[test]
fn a_file_that_replaces_a_directory_is_reported_like_all_others() {
    for has_changed in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let [source, copy] = ["s", "d"].map(|name| place.path().join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir_all(copy.join("x")).unwrap();
        fs::write(copy.join("x/old"), "old").unwrap();
        fs::write(source.join("x"), noise(large(), 1)).unwrap();
        fs::write(source.join("y"), "new").unwrap();
        let changed = if has_changed { source.join("x") } else { PathBuf::new() };
        let events = LateChange { source: changed, replaced: copy.join("x") };
        let verify = (!has_changed).then_some(Hash::Blake3);
        let options = SyncOptions {
            copy: CopyOptions { preserve: Preserve::all(), verify, ..CopyOptions::default() },
            delete: Some(DeleteOptions::default()),
            ..SyncOptions::default()
        };
        let report = sync(&[source], &copy, &options, &events).unwrap();
        let (tree, ending) = (&report.tree, report.tree.ending());
        assert_eq!((tree.files, tree.sync.created, tree.sync.deleted), (2, 2, 2), "{report:?}");
        if has_changed {
            assert_eq!((tree.changed, ending), (1, Ending::Partial));
        } else {
            assert_eq!((tree.verified.same, ending), (2, Ending::Done));
        }
    }
}
