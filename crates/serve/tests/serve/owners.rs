//! Fetches into a directory in which another user has created a file under a name that the fetch uses.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Uid, chownat, mknodat};
use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::client::{Expected, FetchOptions, FetchUrl, fetch};
use thalweg_tree::Hash;

use crate::support::fetch::{QuietWatcher, options};
use crate::support::liar::{LyingServer, honest, send};

const TEXT: &[u8] = b"the text of the server";
const SHA256: &str = "e3424172fab13d20400607567e29772a88823d7c7e0b22650de9561b658af515";

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: {what}: only root can plant files of another user");
    }
    is_root
}

fn give_away(path: &Path) {
    let other = Some(Uid::from_raw(65534));
    chownat(CWD, path, other, None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn server() -> LyingServer {
    LyingServer::new(|asked, stream| send(stream, &honest(asked, TEXT, "\"a\""), TEXT.len() * 2))
}

/// Fetches `f`, and returns the messages.
fn get(server: &LyingServer, folder: &Path, options: &FetchOptions) -> String {
    let destination = Destination::open_until(&folder.join("f"), Until::Part).unwrap();
    let messages = QuietWatcher::default();
    fetch(&FetchUrl::parse(&server.url("x")).unwrap(), destination, options, &messages).unwrap();
    assert_eq!(fs::read(folder.join("f")).unwrap(), TEXT);
    messages.0.into_inner().unwrap().join("\n")
}

/// Returns the journal that an interrupted fetch of `url` leaves if all bytes are present.
fn journal(url: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let len = TEXT.len();
    format!(
        r#"{{"schema":2,"source":{{"url":"{url}","validator":"\"a\"","size":{len}}},"done":[[0,{len}]],"boot_id":"{}"}}"#,
        boot.trim()
    )
}

#[test]
fn a_partial_file_with_a_journal_of_another_user_is_not_continued() {
    if !is_root("a planted partial file") {
        return;
    }
    for gives_journal in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let (server, at) = (server(), place.path());
        let (part, notes) = (at.join(".f.thalweg-part"), at.join(".f.thalweg-journal"));
        fs::write(&part, vec![b'!'; TEXT.len()]).unwrap();
        fs::write(&notes, journal(&server.url("x"))).unwrap();
        give_away(if gives_journal { &notes } else { &part });
        let kept = fs::File::options().write(true).open(&part).unwrap();
        let messages = get(&server, at, &options());
        assert!(
            messages.contains("belongs to user 65534; left unchanged and not used to resume"),
            "{messages}"
        );
        let found = fs::metadata(at.join("f")).unwrap();
        assert_eq!((found.uid(), found.nlink()), (0, 1));
        assert_ne!(found.ino(), kept.metadata().unwrap().ino());
        assert_eq!(fs::read(&part).unwrap(), vec![b'!'; TEXT.len()]);
    }
}

#[test]
fn an_own_partial_file_with_its_journal_is_continued() {
    let place = tempfile::tempdir().unwrap();
    let (server, at) = (server(), place.path());
    fs::write(at.join(".f.thalweg-part"), TEXT).unwrap();
    fs::write(at.join(".f.thalweg-journal"), journal(&server.url("x"))).unwrap();
    for name in [".f.thalweg-part", ".f.thalweg-journal"] {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(get(&server, at, &options()), "");
    assert_eq!(server.asked()[0].from(), Some(TEXT.len() - 1));
    assert_eq!(fs::read_dir(at).unwrap().count(), 1);
}

#[test]
fn a_fifo_or_a_hard_link_with_a_hidden_name_neither_blocks_nor_is_written() {
    let place = tempfile::tempdir().unwrap();
    let (server, at) = (server(), place.path());
    let fifo = |name: &str| {
        mknodat(CWD, at.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    fs::write(at.join("victim"), "kept").unwrap();
    fifo(".f.thalweg-journal");
    assert!(get(&server, at, &options()).contains("is not a regular file; left unchanged"));
    fifo(".f.thalweg-part");
    get(&server, at, &options());
    assert!(fs::symlink_metadata(at.join(".f.thalweg-part")).unwrap().file_type().is_fifo());
    for name in [".f.thalweg-part", ".f.thalweg-journal"] {
        fs::remove_file(at.join(name)).unwrap();
        fs::hard_link(at.join("victim"), at.join(name)).unwrap();
    }
    assert!(get(&server, at, &options()).contains("hard link; left unchanged"));
    assert_eq!(fs::read_to_string(at.join("victim")).unwrap(), "kept");
}

#[test]
fn a_digest_is_never_of_a_file_that_another_user_keeps_open() {
    if !is_root("a planted partial file") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (server, at) = (server(), place.path());
    let part = at.join(".f.thalweg-part");
    fs::write(&part, "").unwrap();
    give_away(&part);
    let kept = fs::File::options().write(true).open(&part).unwrap();
    let expected = vec![Expected::of_digits(Hash::Sha256, SHA256, "a test").unwrap()];
    get(&server, at, &FetchOptions { expected, ..options() });
    std::os::unix::fs::FileExt::write_at(&kept, b"evil", 0).unwrap();
    assert_eq!(fs::read(at.join("f")).unwrap(), TEXT);
}
