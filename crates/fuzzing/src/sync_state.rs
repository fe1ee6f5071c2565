//! The file `.thalweg-sync` in a destination: another user may have written any bytes. Their only effect may be that a
//! sync refuses to delete.

use std::fs;

use thalweg_tree::{
    CopyOptions,
    sync::{DeleteOptions, DeleteRefusal, SyncOptions, sync},
};

use crate::snapshot::expect_names;

/// Runs one input: the bytes of the file.
pub fn run(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    for directory in [&from, &to] {
        fs::create_dir(directory).expect("a directory");
    }
    fs::write(from.join("a"), "abc").expect("a file");
    fs::write(to.join("z"), "abc").expect("a file");
    let state = to.join(".thalweg-sync");
    fs::write(&state, bytes).expect("a file");
    let copy = CopyOptions { jobs: 1, ..CopyOptions::default() };
    let delete = Some(DeleteOptions::default());
    let options = SyncOptions { copy, delete, ..SyncOptions::default() };
    let synced = || sync(std::slice::from_ref(&from), &to, &options, &()).expect("a sync");
    let report = synced();
    assert_eq!(report.tree.error_count, 0);
    let refused = report.deletion.expect("a deletion").refused;
    expect_names(place.path(), &["from", "to"], "to");
    if refused.is_some() {
        assert_eq!(refused, Some(DeleteRefusal::OtherDevice));
        assert_eq!(fs::read(&state).expect("the file"), bytes);
        expect_names(&to, &["a", "z", ".thalweg-sync"], ".thalweg-sync");
        fs::remove_file(&state).expect("the file");
    } else {
        expect_names(&to, &["a", ".thalweg-sync"], ".thalweg-sync");
    }
    assert_eq!(synced().deletion.expect("a deletion").refused, None);
    let text = fs::read_to_string(&state).expect("the file");
    assert!(text.starts_with("thalweg sync 1\nsource ") && text.ends_with('\n'));
}
