//! In append-only directories (`chattr +a`), no name can be renamed or removed. A partial file could not receive its
//! final name, and would stay for ever.

use std::{fs, path::Path, process::Command};

use crate::support::{
    Scratch, bytes, mounts, names, run,
    scratch::unfinished,
    skip,
    skip::{has_tools, is_root},
    thalweg,
};

/// In other directories, a copy of this size has a partial file and a journal.
const LARGE: u64 = 20 << 20;

/// An append-only directory. Dropping it removes the attribute.
struct Frozen<'p>(&'p Path);

impl Frozen<'_> {
    fn chattr(&self, word: &str) -> bool {
        Command::new("chattr").arg(word).arg(self.0).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.chattr("-a");
    }
}

/// Runs the test in an append-only directory on ext4, with a source beside it.
fn in_one(test: &str, then: impl FnOnce(&Path, &Path)) {
    if !is_root(test) || !has_tools(test, &["chattr"]) {
        return;
    }
    let Some(disk) = mounts().get(test, "ext4") else { return };
    let scratch = Scratch::within(disk);
    let folder = scratch.folder("folder");
    fs::write(folder.join("there"), "before").unwrap();
    let source = scratch.folder("source");
    bytes::write(&source.join("large"), 1, LARGE);
    fs::write(source.join("there"), "after").unwrap();
    fs::create_dir(source.join("below")).unwrap();
    bytes::write(&source.join("below/large"), 2, LARGE);
    let frozen = Frozen(&folder);
    if !frozen.chattr("+a") {
        return skip(test, "chattr +a does nothing here");
    }
    then(&source, &folder);
}

#[test]
fn a_large_file_gets_its_name_where_names_can_only_be_added() {
    in_one("a_large_file_gets_its_name_where_names_can_only_be_added", |source, folder| {
        for (name, options) in
            [("plain", &[][..]), ("resumed", &["--resume"]), ("verified", &["--verify"])]
        {
            let to = folder.join(name);
            run(thalweg().arg("copy").args(options).arg(source.join("large")).arg(&to)).expect(0);
            bytes::expect(&to, 1, LARGE);
        }
        assert_eq!(names(folder), ["plain", "resumed", "there", "verified"]);
    });
}

#[test]
fn a_file_that_is_there_is_written_into_where_names_can_only_be_added() {
    in_one(
        "a_file_that_is_there_is_written_into_where_names_can_only_be_added",
        |source, folder| {
            run(thalweg().arg("copy").arg(source.join("there")).arg(folder)).expect(0);
            assert_eq!(fs::read_to_string(folder.join("there")).unwrap(), "after");
            run(thalweg().arg("copy").arg(source.join("large")).arg(folder.join("there")))
                .expect(0);
            bytes::expect(&folder.join("there"), 1, LARGE);
            assert_eq!(names(folder), ["there"]);
        },
    );
}

#[test]
fn a_tree_gets_its_name_where_names_can_only_be_added() {
    in_one("a_tree_gets_its_name_where_names_can_only_be_added", |source, folder| {
        // Copies to a new directory, then into the existing one. The times of the existing one cannot be set.
        for (name, options) in [("new", "-aT"), (".", "-rT")] {
            let to = folder.join(name);
            run(thalweg().args(["copy", options]).arg(source).arg(&to)).expect(0);
            bytes::expect(&to.join("large"), 1, LARGE);
            bytes::expect(&to.join("below/large"), 2, LARGE);
            assert_eq!(fs::read_to_string(to.join("there")).unwrap(), "after");
        }
        assert_eq!(names(folder), ["below", "large", "new", "there"]);
        assert!(unfinished(folder).is_empty());
    });
}
