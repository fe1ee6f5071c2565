//! Lists and digests that a client requests with options: `-x` and `--verify`.

use std::{
    fs,
    io::Write,
    os::unix::fs::{FileTypeExt, MetadataExt},
};

use rustix::fs::{FileType, makedev};

use thalweg_serve::{
    client::{FetchError, tree::TreeOptions, tree::TreeSync},
    manifest::{DirectoryContents, InodeId, ListRequest, ManifestEntry, ManifestKind, SpecialFile},
};
use thalweg_tree::sync::DeleteOptions;

use super::{
    hostile::{LIST, OutsideDirectory, answer, entry, etag, file, get, liar, list},
    support::{
        liar::{LyingServer, ReceivedRequest},
        options, write,
    },
};
use thalweg_testing::names;

#[test]
fn a_directory_elsewhere_is_accepted_only_on_request_and_its_counterpart_stays() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    write(&dst.join("mount/own"), "mine");
    write(&dst.join("old"), "old");
    let elsewhere = entry("mount", ManifestKind::Directory(DirectoryContents::Elsewhere));
    let delete = Some(DeleteOptions::default());
    let sync = TreeSync { delete, path: dst.clone(), ..TreeSync::default() };
    let plain = TreeOptions { sync: Some(sync), ..options() };
    let request = ListRequest { one_file_system: true, ..ListRequest::default() };
    let requesting = TreeOptions { list: request, ..plain.clone() };
    let listed = [elsewhere.clone(), file("new", 1)];
    let error = get(&liar(&listed, "x").url("d/"), &dst, &plain).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert_eq!(names(&dst), ["mount", "old"]);
    // The list cannot have entries of such a directory.
    let inside = [elsewhere, file("mount/x", 1)];
    get(&liar(&inside, "x").url("d/"), &dst, &requesting).unwrap_err();
    assert_eq!(names(&dst), ["mount", "old"]);
    let fetched = get(&liar(&listed, "x").url("d/"), &dst, &requesting).unwrap();
    assert_eq!(fetched.deletion.unwrap().deleted, 1);
    assert_eq!(names(&dst), ["mount", "new"]);
    assert_eq!(fs::read_to_string(dst.join("mount/own")).unwrap(), "mine");
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn a_special_file_is_accepted_only_on_request_and_a_device_only_from_root() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    write(&dst.join("pipe"), "replaced");
    let special = |kind, device| ManifestKind::Special(SpecialFile { kind, device });
    let listed = [
        entry("disk", special(FileType::BlockDevice, makedev(7, 9999))),
        entry("pipe", special(FileType::Fifo, 0)),
    ];
    let error = get(&liar(&listed, "").url("d/"), &dst, &options()).unwrap_err();
    assert!(error.to_string().contains("not requested"), "{error}");
    assert_eq!(names(&dst), ["pipe"]);
    let list = ListRequest { specials: true, ..ListRequest::default() };
    let fetched = get(&liar(&listed, "").url("d/"), &dst, &TreeOptions { list, ..options() });
    let kind = |name: &str| fs::symlink_metadata(dst.join(name)).map(|meta| meta.file_type());
    assert!(kind("pipe").unwrap().is_fifo());
    let may_create = rustix::process::geteuid().is_root();
    assert_eq!(kind("disk").is_ok_and(|kind| kind.is_block_device()), may_create);
    assert_eq!(fetched.unwrap().missed_count == 0, may_create);
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn entries_that_differ_are_not_linked_although_the_list_gives_them_one_inode() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    let shared_node = Some(InodeId { device: 1, inode: 10 });
    let shared = |path: &str, kind| ManifestEntry { shared_node, ..entry(path, kind) };
    let link = || ManifestKind::Link(c"../out".to_owned());
    let mut plain = file("a", 1);
    if let ManifestKind::File(file) = &mut plain.kind {
        file.linked_on = Some(1);
    }
    let listed = [
        plain,
        // This link leads out of the directory, and the one in `d` does not.
        shared("b", link()),
        entry("d", ManifestKind::Directory(DirectoryContents::Listed)),
        shared("p", ManifestKind::Special(SpecialFile { kind: FileType::Fifo, device: 0 })),
        shared("d/b", link()),
        shared("d/c", ManifestKind::Link(c"elsewhere".to_owned())),
    ];
    let list = ListRequest { specials: true, ..ListRequest::default() };
    let linking = TreeOptions { list, hard_links: true, ..options() };
    for _ in 0..2 {
        let fetched = get(&liar(&listed, "x").url("d/"), &dst, &linking).unwrap();
        assert_eq!(fetched.missed_count, 1);
        assert_eq!(names(&dst), ["a", "d", "p"]);
        for (name, kind) in [
            ("a", FileType::RegularFile),
            ("p", FileType::Fifo),
            ("d/b", FileType::Symlink),
            ("d/c", FileType::Symlink),
        ] {
            let meta = fs::symlink_metadata(dst.join(name)).unwrap();
            assert_eq!((FileType::from_raw_mode(meta.mode()), meta.nlink()), (kind, 1), "{name}");
        }
    }
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn a_list_of_a_single_file_has_only_that_file() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    write(&dst.join("own"), "mine");
    let delete = Some(DeleteOptions::default());
    let sync = TreeSync { delete, path: dst.clone(), ..TreeSync::default() };
    let options = TreeOptions { sync: Some(sync), only: Some("f".into()), ..options() };
    let link = entry("f", ManifestKind::Link(c"../out".to_owned()));
    let directory = entry("f", ManifestKind::Directory(DirectoryContents::Listed));
    let lists = [
        vec![file("f", 1), file("own", 1)],
        vec![file("g", 1)],
        vec![entry("g", ManifestKind::Link(c"../out".to_owned()))],
        vec![link],
        vec![directory.clone()],
        vec![directory, file("f/f", 1)],
    ];
    for listed in lists {
        let error = get(&liar(&listed, "x").url("d/"), &dst, &options).unwrap_err();
        assert!(error.to_string().contains("the requested file is 'f'"), "{listed:?}: {error}");
        assert_eq!(names(&dst), ["own"]);
    }
    let mode = fs::metadata(&dst).unwrap().permissions();
    let fetched = get(&liar(&[file("f", 1)], "x").url("d/"), &dst, &options).unwrap();
    assert!(fetched.deletion.is_none());
    assert_eq!(names(&dst), ["f", "own"]);
    assert_eq!(fs::read_to_string(dst.join("own")).unwrap(), "mine");
    assert_eq!(fs::metadata(&dst).unwrap().permissions(), mode);
    beside.is_unharmed(&["dst", "own"]);
}

/// SHA-256 of `ninebytes`.
const RIGHT: &str = "mmlHH1U3CtKGTVLGIStSRRGS9RWp2KbStXrMwA9APf0=";
const WRONG: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// Starts a server that sends `ninebytes` for each file, with this digest if any.
fn digesting(digest: Option<&str>) -> LyingServer {
    let whole = list(&["a", "b"].map(|name| file(name, 9)));
    let line = digest.map(|digest| format!("Repr-Digest: sha-256=:{digest}:\r\n"));
    let head = etag(9) + &line.unwrap_or_default();
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let bytes = match asked.path.as_str() {
            "/d/?manifest" => answer(&whole, LIST),
            _ => answer("ninebytes", &head),
        };
        drop(stream.write_all(&bytes));
    })
}

#[test]
fn a_verified_file_gets_its_name_only_with_the_digest_of_its_bytes() {
    let mut verifying = options();
    (verifying.files.verify, verifying.files.extra.wants_digest) = (true, true);
    for existing in [false, true] {
        let beside = OutsideDirectory::new();
        let dst = beside.dst();
        if existing {
            fs::create_dir(&dst).unwrap();
        }
        let fetched = get(&digesting(Some(WRONG)).url("d/"), &dst, &verifying).unwrap();
        assert_eq!((fetched.missed_count, fetched.files), (2, 0), "{fetched:?}");
        assert!(matches!(fetched.missed[0].error, FetchError::Differs { .. }), "{fetched:?}");
        assert!(names(&dst).is_empty());
        let fetched = get(&digesting(None).url("d/"), &dst, &verifying).unwrap();
        assert!(matches!(fetched.halted, Some(FetchError::Unsupported(_))), "{fetched:?}");
        assert!(!dst.join("a").exists());
        let fetched = get(&digesting(Some(RIGHT)).url("d/"), &dst, &verifying).unwrap();
        assert_eq!((fetched.missed_count, fetched.files), (0, 2), "{fetched:?}");
        assert_eq!(fs::read_to_string(dst.join("a")).unwrap(), "ninebytes");
    }
}

/// Files of the listed size and time, but with other bytes, are found and replaced.
#[test]
fn an_unchanged_file_is_compared_with_the_digest_too() {
    let mut verifying = options();
    (verifying.files.verify, verifying.files.extra.wants_digest) = (true, true);
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    get(&digesting(Some(RIGHT)).url("d/"), &dst, &options()).unwrap();
    let listed = fs::metadata(dst.join("a")).unwrap().modified().unwrap();
    fs::write(dst.join("a"), "NINEBYTES").unwrap();
    fs::File::options().write(true).open(dst.join("a")).unwrap().set_modified(listed).unwrap();
    let fetched = get(&digesting(Some(RIGHT)).url("d/"), &dst, &options()).unwrap();
    assert_eq!((fetched.unchanged, fetched.files), (2, 0));
    let fetched = get(&digesting(Some(RIGHT)).url("d/"), &dst, &verifying).unwrap();
    assert_eq!((fetched.unchanged, fetched.files), (1, 1), "{fetched:?}");
    assert_eq!(fs::read_to_string(dst.join("a")).unwrap(), "ninebytes");
}
