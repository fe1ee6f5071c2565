//! Directories: their listings, and paths that lead out of them.

use std::{
    collections::VecDeque,
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use rustix::fs::{CWD, Mode, mkfifoat};
use thalweg_serve::manifest::{ListRecord, ManifestKind, RecordParser};

use super::support::{TestSite, address, name, noise, serve};

#[test]
fn a_folder_shows_what_it_would_serve() {
    let place = TestSite::new();
    place.file("folder/file", "12345");
    place.file("folder/.hidden", "");
    place.file("folder/sub/x", "");
    std::fs::write(place.path("folder").join(name(b"odd\xff<")), "").unwrap();
    std::fs::write(place.outside("secret"), "").unwrap();
    symlink("../../secret", place.path("folder/out")).unwrap();
    symlink("file", place.path("folder/in")).unwrap();
    mkfifoat(CWD, place.path("folder/fifo"), Mode::RWXU).unwrap();

    let redirect = place.get("/folder?json", "");
    assert_eq!((redirect.status, redirect.field("Location")), (302, Some("/folder/?json")));
    let listing: serde_json::Value =
        serde_json::from_slice(&place.get("/folder/?json", "").body).unwrap();
    let paths = listing.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap());
    let paths: Vec<&str> = paths.collect();
    assert_eq!(paths, ["sub/", "file", "in", "odd%FF%3C"]);
    for path in paths {
        assert_eq!(place.get(&format!("/folder/{path}"), "").status, 200, "{path}");
    }
    let page = place.get("/folder/", "");
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    let page = page.text();
    assert!(page.contains("href=\"odd%FF%3C\"") && page.contains("&lt;</a>"), "{page}");
    assert!(!page.contains("fifo") && !page.contains("hidden") && !page.contains("\"out\""));
    for target in ["/folder/.hidden", "/folder/out", "/folder/fifo", "/folder/file/", "/none"] {
        assert_eq!(place.get(target, "").status, 404, "{target}");
    }
    place.file("folder/index.html", "welcome");
    assert_eq!(place.get("/folder/", "").text(), "welcome");
}

#[test]
fn a_manifest_has_every_entry_once_and_ends_with_its_sums() {
    let place = TestSite::new();
    place.file("t/a", "12345");
    place.file("t/d/e/f", "123");
    std::fs::write(place.path("t").join(name(b"odd\xff\n")), "1").unwrap();
    symlink("/any where", place.path("t/link")).unwrap();
    mkfifoat(CWD, place.path("t/fifo"), Mode::RWXU).unwrap();
    for version in ["1.1", "1.0"] {
        let request = format!("GET /t/?manifest HTTP/{version}\r\nHost: a\r\n\r\n");
        let answer = place.connect().ask(&request);
        assert_eq!(answer.field("Cache-Control"), Some("no-cache"));
        assert!(answer.is_whole);
        let expected = [
            "folder ",
            "file a 5",
            "folder d",
            "link link \"/any where\"",
            "file odd\\xff\\n 1",
            "folder d/e",
            "file d/e/f 3",
            "7 9 1",
        ];
        assert_eq!(shown(&answer.body), expected);
    }
}

#[test]
fn a_large_folder_is_listed_whole_and_sorted_in_every_format() {
    let place = TestSite::new();
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for number in 0..700 {
        let name = format!("{:03}", number * 7 % 1000);
        if number % 3 == 0 {
            place.file(&format!("t/{name}/x"), "1");
            folders.push(format!("{name}/"));
        } else {
            place.file(&format!("t/{name}"), "12");
            files.push(name);
        }
    }
    symlink("003", place.path("t/to-file")).unwrap();
    symlink("000", place.path("t/a-folder")).unwrap();
    folders.push("a-folder/".to_owned());
    files.push("to-file".to_owned());
    place.file("t/.hidden", "");
    let is_folder = |name: &str| folders.iter().any(|folder| folder.trim_end_matches('/') == name);
    if is_folder("003") {
        files.pop();
        folders.push("to-file/".to_owned());
    }
    folders.sort();
    files.sort();
    let expected: Vec<String> = folders.iter().chain(&files).cloned().collect();
    // The second pass uses cached names.
    for _ in 0..2 {
        let listing: Vec<serde_json::Value> =
            serde_json::from_slice(&place.get("/t/?json", "").body).unwrap();
        let paths = listing.iter().map(|entry| entry["path"].as_str().unwrap().to_owned());
        assert_eq!(paths.collect::<Vec<_>>(), expected);
        let page = place.get("/t/", "").text();
        let rows = page.lines().filter_map(|line| line.strip_prefix("<tr><td><a href=\""));
        let rows = rows.map(|row| row.split('"').next().unwrap().to_owned());
        assert_eq!(rows.skip(1).collect::<Vec<_>>(), expected);
        assert!(page.ends_with("</html>\n"));
        let manifest = shown(&place.get("/t/?manifest", "").body);
        let paths: Vec<&str> = manifest.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        let paths = &paths[1..paths.len() - 1];
        let here: Vec<&&str> = paths.iter().filter(|path| !path.contains('/')).collect();
        assert!(here.is_sorted() && here.len() == expected.len());
    }
}

/// Returns the entries of a list with their paths, and its totals.
fn shown(list: &[u8]) -> Vec<String> {
    let mut rest = list.strip_prefix(b"thwglist\x04").unwrap();
    let (mut parser, mut lines) = (RecordParser::default(), Vec::new());
    let (mut folders, mut current) = (VecDeque::new(), String::new());
    while !rest.is_empty() {
        let (record, length) = parser.next(rest).unwrap();
        rest = &rest[length..];
        match record {
            ListRecord::Group(_) => current = folders.pop_front().unwrap(),
            ListRecord::End(totals) => {
                lines.push(format!("{} {} {}", totals.entries, totals.bytes, totals.left_out));
            }
            ListRecord::Entry(entry) => {
                let path = format!("{current}{}", entry.name.escape_ascii());
                lines.push(match entry.kind {
                    ManifestKind::File(file) => format!("file {path} {}", file.size),
                    ManifestKind::Link(target) => format!("link {path} {target:?}"),
                    ManifestKind::Special(special) => format!("special {path} {special:?}"),
                    ManifestKind::Directory(_) => {
                        let slash = if path.is_empty() { "" } else { "/" };
                        folders.push_back(format!("{path}{slash}"));
                        format!("folder {path}")
                    }
                });
            }
        }
    }
    lines
}

#[test]
fn an_archive_is_the_tree() {
    let place = TestSite::new();
    let large = noise(5_000_001);
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(150));
    place.file("t/empty", "");
    place.file("t/large", &large);
    place.file(&format!("t/{long}"), "long");
    symlink("large", place.path("t/link")).unwrap();
    let deep = format!("{}x", "./".repeat(60));
    let targets =
        ["a//b", "./x/../y/.", "http://x//y?z", "/", &"z".repeat(100), &"z".repeat(101), &deep];
    for (number, target) in targets.iter().enumerate() {
        symlink(target, place.path(format!("t/link{number}"))).unwrap();
    }
    mkfifoat(CWD, place.path("t/fifo"), Mode::RWXU).unwrap();
    place.file("t/old", "old");
    let set_time = |name: &str, time| {
        std::fs::File::options()
            .write(true)
            .open(place.path(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    set_time("t/old", UNIX_EPOCH - Duration::new(1, 500_000_001));
    set_time("t/empty", UNIX_EPOCH + Duration::from_secs(5));
    set_time("t/large", UNIX_EPOCH + Duration::new(1_000_000_000, 7));
    for version in ["1.1", "1.0"] {
        let request = format!("GET /t/?tar HTTP/{version}\r\nHost: a\r\n\r\n");
        let answer = place.connect().ask(&request);
        assert!(answer.is_whole);
        let into = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.args(["xf", "-"]).current_dir(into.path()).stdin(Stdio::piped());
        let mut tar = tar.spawn().unwrap();
        tar.stdin.take().unwrap().write_all(&answer.body).unwrap();
        assert!(tar.wait().unwrap().success());
        let read = |name: &str| std::fs::read(into.path().join(name)).unwrap();
        assert!(read("large") == large && read(&long) == b"long" && read("empty").is_empty());
        assert_eq!(std::fs::read_link(into.path().join("link")).unwrap().to_str(), Some("large"));
        for (number, target) in targets.iter().enumerate() {
            let link = into.path().join(format!("link{number}"));
            assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some(*target));
        }
        assert!(!into.path().join("fifo").exists());
        let time = |path: &Path| std::fs::symlink_metadata(path).unwrap().modified().unwrap();
        for name in ["large", &long, "empty", "link", "old"] {
            let [sent, served] = [into.path().join(name), place.path("t").join(name)];
            assert_eq!(time(&sent), time(&served), "{name}");
        }
    }
}

#[test]
fn what_is_switched_off_is_not_there() {
    let place = TestSite::with(|options| options.listing = false);
    place.file("file", "");
    for target in ["/", "/?json", "/?manifest", "/?tar"] {
        assert_eq!(place.get(target, "").status, 403, "{target}");
    }
    assert_eq!(place.get("/file", "").status, 200);
    assert_eq!(place.get("/-/metrics", "").status, 404);
}

#[test]
fn hidden_names_and_counts_are_shown_on_request() {
    let place = TestSite::with(|options| {
        options.hidden = true;
        options.metrics = true;
    });
    place.file(".hidden", "seen");
    place.file("large", vec![1; 1 << 20]);
    assert_eq!(place.get("/.hidden", "").text(), "seen");
    assert_eq!(place.get("/large", "").body.len(), 1 << 20);
    let page = place.counts(|page| {
        page.contains("thalweg_answers_total{status=\"200\"} 2")
            && page.contains("thalweg_moved_bytes_total{mechanism=")
    });
    let seconds = page.lines().find(|line| line.starts_with("thalweg_moving_seconds_total{"));
    let seconds = seconds.and_then(|line| line.rsplit(' ').next()).map(str::parse::<f64>);
    assert!(seconds.is_some_and(|seconds| seconds.unwrap() > 0.0), "{page}");
}

#[test]
fn a_single_file_is_all_there_is() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("a b"), "text").unwrap();
    std::fs::write(place.path().join("other"), "").unwrap();
    let server = serve(&place.path().join("a b"), |_| {});
    let ask = |target: &str| {
        let mut stream = std::net::TcpStream::connect(address(&server)).unwrap();
        let request = format!("GET {target} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    };
    assert!(ask("/").contains("Location: /a%20b\r\n"));
    assert!(ask("/a%20b").ends_with("\r\n\r\ntext"));
    assert!(ask("/other").starts_with("HTTP/1.1 404"));
}
