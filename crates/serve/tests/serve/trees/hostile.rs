//! Hostile servers: nothing is written outside the destination, and memory stays bounded.

use std::{ffi::CString, fs, io::Write, path::Path};

use thalweg_serve::{
    client::{
        FetchError,
        tree::{TreeFetched, TreeOptions, TreeSync},
    },
    manifest::{
        DirectoryContents, FileTag, GroupFilter, ListRequest, ListTotals, ManifestEntry,
        ManifestKind, Meta, RecordWriter,
    },
};
use thalweg_tree::{install::EntryXattrs, sync::DeleteOptions};

use super::support::{
    get_over,
    liar::{LyingServer, ReceivedRequest},
    options, write,
};
use thalweg_testing::names;

const META: Meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: 1, nanos: 2 };

fn tag(size: u64) -> FileTag {
    FileTag { size, inode: 10, changed: (1, 3), linked_on: None, is_sparse: false }
}

/// Returns the `ETag` header that the list implies for a file of this size.
pub(super) fn etag(size: u64) -> String {
    format!("ETag: {}\r\n", tag(size).etag(META.mtime, META.nanos))
}

/// Returns an entry with the whole path as its name.
pub(super) fn entry(path: &str, kind: ManifestKind) -> ManifestEntry {
    let (name, xattrs) = (path.into(), EntryXattrs::default());
    ManifestEntry { name, kind, shared_node: None, meta: META, xattrs }
}

pub(super) fn file(path: &str, size: u64) -> ManifestEntry {
    entry(path, ManifestKind::File(tag(size)))
}

fn folder(path: &str) -> ManifestEntry {
    entry(path, ManifestKind::Directory(DirectoryContents::Listed))
}

fn link(path: &str, target: &str) -> ManifestEntry {
    entry(path, ManifestKind::Link(CString::new(target).unwrap()))
}

/// Returns the bytes before the first group.
fn begin() -> Vec<u8> {
    let mut out = Vec::new();
    RecordWriter::begin(&mut out);
    RecordWriter::default().entry(&mut out, &folder(""));
    out
}

/// Returns a list of these entries with the right totals. If the directory of an entry is not listed before
/// it, the entry keeps its whole path as its name.
pub(super) fn list(entries: &[ManifestEntry]) -> Vec<u8> {
    let (mut out, mut writer) = (begin(), RecordWriter::default());
    let (mut folders, mut groups, mut bytes) = (vec![Vec::new()], 1, 0_u64);
    writer.group(&mut out, &GroupFilter::NotRequested);
    for entry in entries {
        let cut = entry.name.iter().rposition(|byte| *byte == b'/');
        let above = &entry.name[..cut.unwrap_or(0)];
        let found = folders[groups - 1..].iter().position(|folder| folder == above);
        for _ in 0..found.unwrap_or(0) {
            writer.group(&mut out, &GroupFilter::NotRequested);
            groups += 1;
        }
        let name = match (found, cut) {
            (Some(_), Some(cut)) => entry.name[cut + 1..].to_vec(),
            _ => entry.name.clone(),
        };
        writer.entry(&mut out, &ManifestEntry { name, ..entry.clone() });
        match &entry.kind {
            ManifestKind::File(file) => bytes = bytes.wrapping_add(file.size),
            ManifestKind::Directory(DirectoryContents::Listed) => folders.push(entry.name.clone()),
            ManifestKind::Directory(_) | ManifestKind::Link(_) | ManifestKind::Special(_) => {}
        }
    }
    (groups..folders.len()).for_each(|_| writer.group(&mut out, &GroupFilter::NotRequested));
    let entries = entries.len() as u64 + 1;
    RecordWriter::end(&mut out, &ListTotals { entries, bytes, ..ListTotals::default() });
    out
}

pub(super) fn answer(body: impl AsRef<[u8]>, more: &str) -> Vec<u8> {
    let (body, length) = (body.as_ref(), body.as_ref().len());
    let head =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n");
    [head.as_bytes(), body].concat()
}

pub(super) const LIST: &str =
    "Content-Type: application/vnd.thalweg.list\r\nThalweg: 0.0.0; format=4\r\n";

/// `true` in the module that connects by a command.
fn is_over_command() -> bool {
    module_path!().ends_with("hostile_over_command")
}

pub(super) fn get(
    url: &str,
    path: &Path,
    options: &TreeOptions,
) -> Result<TreeFetched, FetchError> {
    get_over(url, path, options, is_over_command())
}

/// Starts a server that sends a list of these entries, and `body` for every file.
pub(super) fn liar(entries: &[ManifestEntry], body: &'static str) -> LyingServer {
    let (list, entries) = (list(entries), entries.to_vec());
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let name = asked.path.strip_prefix("/d/").unwrap_or_default();
        let size = entries.iter().find_map(|entry| match entry.kind {
            ManifestKind::File(file) if entry.name == name.as_bytes() => Some(file.size),
            _ => None,
        });
        let answer = match name {
            name if name.starts_with("?manifest") => answer(&list, LIST),
            _ => answer(body, &etag(size.unwrap_or(0))),
        };
        drop(stream.write_all(&answer));
    })
}

/// Starts a server that sends these bytes as the list.
fn liar_of_bytes(list: Vec<u8>) -> LyingServer {
    LyingServer::new(move |_: &ReceivedRequest, stream| {
        drop(stream.write_all(&answer(&list, LIST)));
    })
}

/// A scratch directory with a file next to the destination, and a check that this file is unchanged.
pub(super) struct OutsideDirectory(tempfile::TempDir);

impl OutsideDirectory {
    pub(super) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        write(&place.path().join("own/secret"), "mine");
        Self(place)
    }

    pub(super) fn dst(&self) -> std::path::PathBuf {
        self.0.path().join("dst")
    }

    #[track_caller]
    pub(super) fn is_unharmed(&self, expected: &[&str]) {
        assert_eq!(names(self.0.path()), expected);
        assert_eq!(fs::read(self.0.path().join("own/secret")).unwrap(), b"mine");
        assert_eq!(names(&self.0.path().join("own")), ["secret"]);
    }
}

#[test]
fn a_list_that_leads_out_or_contradicts_itself_is_refused_before_anything_is_made() {
    let cases = [
        vec![file("../own/secret", 1)],
        vec![file("..", 1)],
        vec![file("/etc/passwd", 1)],
        vec![file("a\0b", 1)],
        vec![folder("a"), file("a/../../own/secret", 1)],
        vec![file(".", 1)],
        vec![file("", 1)],
        vec![file("a", 1), file("a", 1)],
        vec![file("a", 1), folder("a"), file("a/x", 1)],
        vec![file("a", 1), file("a/x", 1)],
        vec![link("a", "../own"), file("a/secret", 1)],
        vec![link("a", "../own"), folder("a"), file("a/secret", 1)],
        vec![file("a/x", 1), folder("a")],
        vec![file("a", u64::MAX), file("b", 1)],
        vec![file(&"x".repeat(300), 1)],
        vec![file(&"x/".repeat(40_000), 1)],
    ];
    for lines in cases {
        let beside = OutsideDirectory::new();
        let server = liar(&lines, "x");
        let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
        assert!(matches!(error, FetchError::Broken(_)), "{error} of {lines:?}");
        beside.is_unharmed(&["own"]);
    }
}

#[test]
fn bytes_that_are_no_complete_list_are_refused_before_anything_is_made() {
    let whole = list(&[file("a", 1), folder("b"), file("b/x", 1)]);
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|cut| whole[..cut].to_vec()).collect();
    let end = whole.len() - 4;
    let group = [&whole[..end], &[4], &whole[end..]].concat();
    let missing = [&begin()[..], &[0, 1, 0, 0]].concat();
    let other_format = [b"thwglist\x05", &whole[9..]].concat();
    cases.extend([group, missing, other_format, [&whole[..], &[0]].concat(), b"<html>".to_vec()]);
    for bytes in cases {
        let beside = OutsideDirectory::new();
        let server = liar_of_bytes(bytes.clone());
        let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
        assert!(matches!(error, FetchError::Broken(_)), "{error} of {bytes:?}");
        beside.is_unharmed(&["own"]);
    }
}

#[test]
fn a_link_that_may_lead_out_is_not_made_and_nothing_goes_through_one() {
    let beside = OutsideDirectory::new();
    let lines = [
        link("absolute", "/etc"),
        link("dot", "."),
        link("good", "x"),
        link("through", "dot/.."),
        link("up", "../own"),
        file("x", 1),
    ];
    let server = liar(&lines, "x");
    let fetched = get(&server.url("d/"), &beside.dst(), &options()).unwrap();
    assert_eq!((fetched.links, fetched.files, fetched.missed_count), (2, 1, 3), "{fetched:?}");
    assert_eq!(names(&beside.dst()), ["dot", "good", "x"]);
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn a_link_that_is_made_as_it_is_leads_nothing_out() {
    let beside = OutsideDirectory::new();
    let all_links = TreeOptions { all_links: true, ..options() };
    let links = [link("absolute", "/etc"), link("up", "../own")];
    let server = liar(&links, "x");
    let fetched = get(&server.url("d/"), &beside.dst(), &all_links).unwrap();
    assert_eq!((fetched.links, fetched.missed_count), (2, 0), "{fetched:?}");
    let lines = [folder("up"), file("up/new", 1), file("up/secret", 1)];
    let server = liar(&lines, "x");
    let fetched = get(&server.url("d/"), &beside.dst(), &all_links).unwrap();
    assert_eq!((fetched.files, fetched.missed_count), (0, 3), "{fetched:?}");
    assert_eq!(fs::read_link(beside.dst().join("up")).unwrap(), Path::new("../own"));
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn a_list_without_end_stops_at_the_limit_and_leaves_nothing() {
    let beside = OutsideDirectory::new();
    let server = LyingServer::new(|_, stream| {
        let mut out = [format!("HTTP/1.1 200 OK\r\n{LIST}\r\n").as_bytes(), &begin()].concat();
        let mut writer = RecordWriter::default();
        writer.group(&mut out, &GroupFilter::NotRequested);
        for n in 0_u64.. {
            for i in 0..1000 {
                writer.entry(&mut out, &file(&format!("{:012}", n * 1000 + i), 1));
            }
            if stream.write_all(&out).is_err() {
                return;
            }
            out.clear();
        }
    });
    let small = TreeOptions { most_list: 20_000_000, ..options() };
    let error = get(&server.url("d/"), &beside.dst(), &small).unwrap_err();
    assert!(error.to_string().contains("--max-list"), "{error}");
    beside.is_unharmed(&["own"]);
}

#[test]
fn a_list_that_is_short_and_has_long_paths_stops_at_the_limit() {
    let beside = OutsideDirectory::new();
    let (mut out, mut writer) = (begin(), RecordWriter::default());
    // Each directory is in the previous one, with a name of 255 bytes.
    let name = "x".repeat(255);
    for _ in 0..200 {
        writer.group(&mut out, &GroupFilter::NotRequested);
        writer.entry(&mut out, &folder(&name));
    }
    assert!(out.len() < 100_000);
    let small = TreeOptions { most_list: 1 << 20, ..options() };
    let server = liar_of_bytes(out.clone());
    let error = get(&server.url("d/"), &beside.dst(), &small).unwrap_err();
    assert!(error.to_string().contains("--max-list"), "{error}");
    for _ in 0..100 {
        writer.group(&mut out, &GroupFilter::NotRequested);
        writer.entry(&mut out, &folder(&name));
    }
    let server = liar_of_bytes(out);
    let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
    assert!(error.to_string().contains("65535"), "{error}");
    beside.is_unharmed(&["own"]);
}

#[test]
fn a_record_without_end_is_refused() {
    let beside = OutsideDirectory::new();
    let (mut out, target) = (begin(), "x".repeat(3_000_000));
    let mut writer = RecordWriter::default();
    writer.group(&mut out, &GroupFilter::NotRequested);
    writer.entry(&mut out, &link("a", &target));
    let server = liar_of_bytes(out);
    let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
    beside.is_unharmed(&["own"]);
}

/// The client excludes entries that the server lists, or that only the destination has.
#[test]
fn an_excluded_entry_is_neither_replaced_nor_deleted_whatever_the_server_lists() {
    let beside = OutsideDirectory::new();
    let dst = beside.dst();
    for name in ["secret", "hidden/own", "old", "d/secret"] {
        write(&dst.join(name), "mine");
    }
    let listed =
        [folder("d"), folder("hidden"), file("new", 1), file("secret", 1), file("hidden/x", 1)];
    let server = liar(&listed, "x");
    let exclude = vec!["secret".into(), "hidden/".into()];
    let sync = TreeSync {
        delete: Some(DeleteOptions::default()),
        path: dst.clone(),
        ..TreeSync::default()
    };
    let list = ListRequest { exclude, ..ListRequest::default() };
    let excluding = TreeOptions { list, sync: Some(sync), ..options() };
    let fetched = get(&server.url("d/"), &dst, &excluding).unwrap();
    assert_eq!((fetched.excluded, fetched.missed_count, fetched.left_out), (2, 0, 0));
    assert_eq!(fetched.deletion.unwrap().deleted, 1, "only `old`");
    assert_eq!(names(&dst), ["d", "hidden", "new", "secret"]);
    for name in ["secret", "hidden/own", "d/secret"] {
        assert_eq!(fs::read_to_string(dst.join(name)).unwrap(), "mine", "{name}");
    }
    assert_eq!(names(&dst.join("hidden")), ["own"]);
    beside.is_unharmed(&["dst", "own"]);
}

/// A server that ignores the request for filter files would list entries that they exclude.
#[test]
fn a_list_without_the_requested_filter_files_is_refused_and_so_are_others() {
    let beside = OutsideDirectory::new();
    let list = ListRequest { filter_file: Some(".f".into()), ..ListRequest::default() };
    let filtered = TreeOptions { list, ..options() };
    let server = liar(&[file("a", 1)], "x");
    let error = get(&server.url("d/"), &beside.dst(), &filtered).unwrap_err();
    assert!(matches!(error, FetchError::Unsupported(_)), "{error}");
    for (length, options) in [(1, &options()), ((1 << 20) + 1, &filtered)] {
        let mut out = begin();
        RecordWriter::default().group(&mut out, &GroupFilter::Text(vec![b'*'; length]));
        RecordWriter::end(&mut out, &ListTotals { entries: 1, ..ListTotals::default() });
        let error = get(&liar_of_bytes(out).url("d/"), &beside.dst(), options).unwrap_err();
        assert!(error.to_string().contains("filter file"), "{error}");
    }
    let (mut out, mut writer, dense) = (begin(), RecordWriter::default(), b"[x]".repeat(349_525));
    for _ in 0..4 {
        writer.group(&mut out, &GroupFilter::Text(dense.clone()));
        writer.entry(&mut out, &folder("d"));
    }
    let error = get(&liar_of_bytes(out).url("d/"), &beside.dst(), &filtered).unwrap_err();
    assert!(error.to_string().contains("64 MiB"), "{error}");
    beside.is_unharmed(&["own"]);
}

#[test]
fn a_file_that_is_not_as_listed_does_not_get_its_name() {
    for (size, body) in [(1, "more than that"), (100, "x"), (1 << 40, "x")] {
        let beside = OutsideDirectory::new();
        let server = liar(&[file("a", size), file("z", body.len() as u64)], body);
        let fetched = get(&server.url("d/"), &beside.dst(), &options()).unwrap();
        assert_eq!((fetched.later, fetched.missed_count), (1, 1), "{size}: {fetched:?}");
        assert_eq!(names(&beside.dst()), ["z"]);
    }
}

#[test]
fn a_body_that_ends_early_or_is_in_chunks_is_no_file() {
    for text in [
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nninebytes\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 9\r\n\r\nninebytes",
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nninebytes",
        "HTTP/1.1 206 OK\r\nETag: \"a\"\r\nContent-Range: bytes 0-8/9\r\nContent-Length: 9\r\n\r\nninebytes",
        "HTTP/1.1 302 OK\r\nLocation: /d/a\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "nonsense",
    ] {
        let beside = OutsideDirectory::new();
        let whole = list(&[file("a", 9)]);
        let server = LyingServer::new(move |asked: &ReceivedRequest, stream| {
            let bytes = match asked.path.as_str() {
                "/d/?manifest" => answer(&whole, LIST),
                _ => text.replace("ETag: \"a\"\r\n", &etag(9)).into(),
            };
            drop(stream.write_all(&bytes));
        });
        let mut once = options();
        once.files.retries = 0;
        let fetched = get(&server.url("d/"), &beside.dst(), &once).unwrap();
        assert!(fetched.missed_count == 1 || fetched.halted.is_some(), "{text}: {fetched:?}");
        assert!(!beside.dst().join("a").exists(), "{text}");
    }
}

/// Starts a server that answers `text` to the requests for the files in `sick`.
fn with_sick(sick: &'static [&'static str], text: &'static str) -> LyingServer {
    let lines = ["a", "b", "c", "d", "e", "f"].map(|name| file(name, 9));
    let large = file("l", 20 << 20);
    let whole = list(&[&lines[..], &[large]].concat());
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let bytes = match asked.path.as_str() {
            "/d/?manifest" => answer(&whole, LIST),
            path if sick.iter().any(|name| path.ends_with(name)) => {
                text.replace("ETag: \"a\"\r\n", &etag(9)).into()
            }
            "/d/l" => answer("l".repeat(20 << 20), &etag(20 << 20)),
            _ => answer("ninebytes", &etag(9)),
        };
        drop(stream.write_all(&bytes));
    })
}

#[test]
fn a_file_that_the_server_cannot_read_keeps_no_other_from_coming() {
    for text in [
        "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\nshort",
        "HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    ] {
        let beside = OutsideDirectory::new();
        let server = with_sick(&["/b", "/d"], text);
        let mut once = options();
        (once.files.retries, once.jobs) = (0, 1);
        let fetched = get(&server.url("d/"), &beside.dst(), &once).unwrap();
        assert!(fetched.halted.is_none(), "{text}: {fetched:?}");
        assert_eq!((fetched.later, fetched.missed_count), (2, 2), "{text}: {fetched:?}");
        assert_eq!(names(&beside.dst()), ["a", "c", "e", "f", "l"]);
    }
    // An error of a large file, which a later run could resume, does not stop the fetch either.
    let beside = OutsideDirectory::new();
    let server =
        with_sick(&["/l"], "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let mut once = options();
    (once.files.retries, once.jobs) = (0, 1);
    let fetched = get(&server.url("d/"), &beside.dst(), &once).unwrap();
    assert!(fetched.halted.is_none() && fetched.later == 1, "{fetched:?}");
    assert_eq!(names(&beside.dst()), ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn a_server_that_can_read_nothing_is_not_asked_for_everything() {
    let beside = OutsideDirectory::new();
    let sick = &["/a", "/b", "/c", "/d", "/e", "/f"];
    let server =
        with_sick(sick, "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let mut once = options();
    (once.files.retries, once.jobs) = (0, 1);
    let fetched = get(&server.url("d/"), &beside.dst(), &once).unwrap();
    assert!(matches!(fetched.halted, Some(FetchError::Status { status: 500, .. })), "{fetched:?}");
    assert_eq!(fetched.missed_count, 3);
    assert!(fetched.kept.is_some() && !beside.dst().exists());
}

#[test]
fn a_server_without_a_list_is_refused() {
    let cases: [&[u8]; 3] = [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    for bytes in cases {
        let beside = OutsideDirectory::new();
        let server = LyingServer::always(bytes.to_vec());
        let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
        assert!(
            matches!(&error, FetchError::Unsupported(why) if why.contains("wget -r") || is_over_command()),
            "{error}"
        );
        beside.is_unharmed(&["own"]);
    }
}

#[test]
fn names_that_are_one_here_are_not_put_over_each_other() {
    let Some(place) = folding() else { return };
    let lines = [file("NAME", 1), file("name", 1)];
    let server = liar(&lines, "x");
    for _ in 0..2 {
        let fetched = get(&server.url("d/"), &place.path().join("dst"), &options()).unwrap();
        assert_eq!(fetched.missed_count, 1, "{fetched:?}");
        assert_eq!(names(&place.path().join("dst")).len(), 1);
    }
}

/// Returns a case-insensitive directory, if `THALWEG_FOLDING` names one.
fn folding() -> Option<tempfile::TempDir> {
    let test = "names_that_are_one_here_are_not_put_over_each_other";
    let root = std::env::var_os("THALWEG_FOLDING");
    let place = root.and_then(|root| tempfile::tempdir_in(Path::new(&root)).ok());
    if place.is_none() {
        skip(test, "no folder where big and small letters are the same: THALWEG_FOLDING names one");
    }
    place
}

use thalweg_testing::skip;
