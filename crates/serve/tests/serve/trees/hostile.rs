//! Servers that mean harm: nothing is written outside the folder, and memory stays bounded.

use std::{fs, io::Write, path::Path};

use thalweg_serve::client::{
    FetchError,
    tree::{TreeFetched, TreeOptions},
};

use super::support::{
    get_over,
    liar::{LyingServer, ReceivedRequest},
    names, options, write,
};

const META: &str = r#""mode":420,"uid":0,"gid":0,"mtime":1,"nanos":2"#;

fn file(path: &str, size: u64) -> String {
    format!(r#"{{"type":"file","path":"{path}","size":{size},{META},"etag":"\"a\""}}"#)
}

fn folder(path: &str) -> String {
    format!(r#"{{"type":"folder","path":"{path}","mode":493,"uid":0,"gid":0,"mtime":1,"nanos":2}}"#)
}

fn link(path: &str, target: &str) -> String {
    format!(r#"{{"type":"link","path":"{path}","target":"{target}",{META}}}"#)
}

/// A list of these lines below the folder itself, with the right sums.
fn list(lines: &[String]) -> String {
    let mut text = folder("") + "\n";
    for line in lines {
        text.extend([line.as_str(), "\n"]);
    }
    let sizes = lines.iter().filter_map(|line| line.split("\"size\":").nth(1));
    let bytes: u64 = sizes
        .filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok())
        .fold(0, u64::wrapping_add);
    let entries = lines.len() + 1;
    text + &format!("{{\"type\":\"end\",\"entries\":{entries},\"bytes\":{bytes},\"left_out\":0}}\n")
}

fn answer(body: &str, more: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}")
        .into()
}

const JSONL: &str = "Content-Type: application/jsonl\r\nThalweg: 0.0.0; format=1\r\n";

/// `true` if this file is the module whose tests connect by a command.
fn is_over_command() -> bool {
    module_path!().ends_with("hostile_over_command")
}

fn get(url: &str, path: &Path, options: &TreeOptions) -> Result<TreeFetched, FetchError> {
    get_over(url, path, options, is_over_command())
}

/// Gives this list, and `body` for every file of it.
fn liar(list: String, body: &'static str) -> LyingServer {
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let answer = match asked.path.as_str() {
            "/d/?manifest" => answer(&list, JSONL),
            _ => answer(body, "ETag: \"a\"\r\n"),
        };
        drop(stream.write_all(&answer));
    })
}

/// A scratch folder with something beside what is fetched, and a check that it is as it was.
struct OutsideDirectory(tempfile::TempDir);

impl OutsideDirectory {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        write(&place.path().join("own/secret"), "mine");
        Self(place)
    }

    fn dst(&self) -> std::path::PathBuf {
        self.0.path().join("dst")
    }

    #[track_caller]
    fn is_unharmed(&self, expected: &[&str]) {
        assert_eq!(names(self.0.path()), expected);
        assert_eq!(fs::read(self.0.path().join("own/secret")).unwrap(), b"mine");
        assert_eq!(names(&self.0.path().join("own")), ["secret"]);
    }
}

#[test]
fn a_list_that_leads_out_or_contradicts_itself_is_refused_before_anything_is_made() {
    let cases = [
        vec![file("../own/secret", 1)],
        vec![file("%2e%2e/own/secret", 1)],
        vec![file("/etc/passwd", 1)],
        vec![file("a%00b", 1)],
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
        vec![r#"{"type":"folder","path":"a"}"#.to_owned()],
        vec!["<html>".to_owned()],
    ];
    for lines in cases {
        let beside = OutsideDirectory::new();
        let server = liar(list(&lines), "x");
        let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
        assert!(matches!(error, FetchError::Broken(_)), "{error} of {lines:?}");
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
    let server = liar(list(&lines), "x");
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
    let server = liar(list(&links), "x");
    let fetched = get(&server.url("d/"), &beside.dst(), &all_links).unwrap();
    assert_eq!((fetched.links, fetched.missed_count), (2, 0), "{fetched:?}");
    let lines = [folder("up"), file("up/new", 1), file("up/secret", 1)];
    let server = liar(list(&lines), "x");
    let fetched = get(&server.url("d/"), &beside.dst(), &all_links).unwrap();
    assert_eq!((fetched.files, fetched.missed_count), (0, 3), "{fetched:?}");
    assert_eq!(fs::read_link(beside.dst().join("up")).unwrap(), Path::new("../own"));
    beside.is_unharmed(&["dst", "own"]);
}

#[test]
fn a_list_without_end_stops_at_the_limit_and_leaves_nothing() {
    let beside = OutsideDirectory::new();
    let server = LyingServer::new(|_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\n{JSONL}\r\n{}\n", folder(""));
        drop(stream.write_all(head.as_bytes()));
        for n in 0_u64.. {
            let lines: String =
                (0..1000).map(|i| file(&format!("{:012}", n * 1000 + i), 1) + "\n").collect();
            if stream.write_all(lines.as_bytes()).is_err() {
                return;
            }
        }
    });
    let small = TreeOptions { most_list: 20_000_000, ..options() };
    let error = get(&server.url("d/"), &beside.dst(), &small).unwrap_err();
    assert!(error.to_string().contains("--max-list"), "{error}");
    beside.is_unharmed(&["own"]);
}

#[test]
fn a_line_without_end_is_refused() {
    let beside = OutsideDirectory::new();
    let server = liar(format!("{}\n{}", folder(""), "x".repeat(3_000_000)), "");
    let error = get(&server.url("d/"), &beside.dst(), &options()).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
    beside.is_unharmed(&["own"]);
}

#[test]
fn a_file_that_is_not_as_listed_does_not_get_its_name() {
    for (size, body) in [(1, "more than that"), (100, "x"), (1 << 40, "x")] {
        let beside = OutsideDirectory::new();
        let server = liar(list(&[file("a", size), file("z", body.len() as u64)]), body);
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
                "/d/?manifest" => answer(&whole, JSONL),
                _ => text.into(),
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

/// Of a server whose answer for each of the sick files is this.
fn with_sick(sick: &'static [&'static str], text: &'static str) -> LyingServer {
    let lines = ["a", "b", "c", "d", "e", "f"].map(|name| file(name, 9));
    let large = file("l", 20 << 20);
    let whole = list(&[&lines[..], &[large]].concat());
    LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let bytes = match asked.path.as_str() {
            "/d/?manifest" => answer(&whole, JSONL),
            path if sick.iter().any(|name| path.ends_with(name)) => text.into(),
            "/d/l" => answer(&"l".repeat(20 << 20), "ETag: \"a\"\r\n"),
            _ => answer("ninebytes", "ETag: \"a\"\r\n"),
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
    // Also if it is one that would be gone on with.
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
    let server = liar(list(&lines), "x");
    for _ in 0..2 {
        let fetched = get(&server.url("d/"), &place.path().join("dst"), &options()).unwrap();
        assert_eq!(fetched.missed_count, 1, "{fetched:?}");
        assert_eq!(names(&place.path().join("dst")).len(), 1);
    }
}

/// A folder in which big and small letters are the same, if one is to be had.
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
