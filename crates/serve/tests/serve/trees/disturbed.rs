//! Fetches while another process replaces files of the destination.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
};

use thalweg_serve::client::tree::TreeOptions;

use super::{
    hostile::{LIST, OutsideDirectory, answer, etag, file, get, list},
    support::{
        liar::{LyingServer, ReceivedRequest},
        options, write,
    },
};

/// Digest of `x`.
const DIGEST: &str = "Repr-Digest: sha-256=:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=:\r\n";

/// Starts a server of the file `f` with the content `x`. Before it sends the hash of `f`, it renames `other` to `f` in the
/// destination, as another user could.
fn swapping(dst: PathBuf) -> LyingServer {
    let list = list(&[file("f", 1)]);
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let bytes = if asked.path.ends_with("?manifest") {
            answer(&list, LIST)
        } else if asked.get("want-repr-digest").is_some() {
            let _ = fs::rename(dst.join("other"), dst.join("f"));
            let head = answer("x", &format!("{}{DIGEST}", etag(1)));
            head[..head.len() - 1].to_vec()
        } else {
            answer("x", &etag(1))
        };
        drop(stream.write_all(&bytes));
    })
}

#[test]
fn a_file_that_takes_the_name_during_a_comparison_keeps_its_attributes() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    for name in ["f", "other"] {
        write(&dst.join(name), "x");
        fs::set_permissions(dst.join(name), Permissions::from_mode(0o600)).unwrap();
    }
    let other = File::open(dst.join("other")).unwrap();
    let before = other.metadata().unwrap();
    let by_hash = TreeOptions { by_hash: true, ..options() };
    let server = swapping(dst.clone());
    let fetched = get(&server.url("d/"), &dst, &by_hash).unwrap();
    let after = other.metadata().unwrap();
    assert_eq!(
        (after.mode(), after.modified().unwrap()),
        (before.mode(), before.modified().unwrap())
    );
    assert_eq!((fetched.files, fetched.missed_count), (1, 0), "{fetched:?}");
    let new = fs::metadata(dst.join("f")).unwrap();
    assert!(new.ino() != before.ino() && new.mode() & 0o777 == 0o644);
}
