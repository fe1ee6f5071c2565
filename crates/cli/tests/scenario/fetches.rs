//! `thalweg fetch`: killed, limited, interrupted, and from other servers.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{
    Running, Scratch, Served, bytes, names, run,
    run::wrapped,
    skip,
    skip::{has_tools, is_root},
    thalweg,
};

#[allow(dead_code, reason = "the tests of the library use all of it")]
#[path = "../../../serve/tests/serve/support/liar.rs"]
pub mod liar;
use liar::{LyingServer, honest, send};

const LEN: usize = 3_000_000;

/// Starts a server that sends the second half very slowly until `hurry` is `true`.
fn slow(bytes: Vec<u8>, hurry: Arc<AtomicBool>) -> LyingServer {
    LyingServer::new(move |asked, stream| {
        let (head, body) = honest(asked, &bytes, "\"a\"");
        drop(stream.write_all(head.as_bytes()));
        let (first, second) = body.split_at(body.len() / 2);
        for piece in first.chunks(100_000).chain(second.chunks(100)) {
            if stream.write_all(piece).is_err() {
                return;
            }
            if !hurry.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    })
}

/// Returns `true` if the journal records bytes of the partial file.
pub fn is_written(journal: &Path) -> bool {
    let journal = fs::read(journal).ok();
    let journal = journal.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    journal.is_some_and(|journal| journal["done"].as_array().is_some_and(|done| !done.is_empty()))
}

#[test]
fn after_a_kill_the_same_command_moves_only_what_is_missing() {
    let bytes = bytes::of(1, LEN);
    let hurry = Arc::new(AtomicBool::new(false));
    let server = slow(bytes.clone(), hurry.clone());
    let rounds = std::env::var("THALWEG_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    for round in 0..rounds {
        let scratch = Scratch::new();
        let path = scratch.join("f");
        let fetch = || {
            let mut command = thalweg();
            command.args(["fetch", "--json", &server.url("x")]).arg(&path);
            command
        };
        hurry.store(false, Ordering::Relaxed);
        let mut running = Running::start(&mut fetch());
        assert!(running.wait_until_open(|path| path.ends_with(".f.thalweg-part")));
        // Every second kill waits until the journal records bytes to resume from. The others come at any time.
        let has_begun = round % 2 == 0;
        while has_begun && !is_written(&scratch.join(".f.thalweg-journal")) {
            assert!(!running.has_ended());
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30 * (round % 7)));
        running.child().kill().unwrap();
        drop(running.finish());
        assert!(!path.exists());
        hurry.store(true, Ordering::Relaxed);
        let second = run(&mut fetch()).expect(0);
        assert!(fs::read(&path).unwrap() == bytes, "round {round}");
        assert_eq!(names(scratch.path()), ["f"]);
        let moved = second.json()["bytes"].as_u64().unwrap();
        assert!(!has_begun || moved < LEN as u64, "{moved}");
    }
}

/// The first response ends early. All later responses have another file of the same length. Their headers either hide
/// this, or show it by a different validator.
#[test]
fn bytes_of_two_files_are_never_joined_by_reconnecting_resuming_or_several_connections() {
    let dated = |day: u32| {
        format!(
            "Date: Sun, 06 Nov 2022 08:50:37 GMT\r\nLast-Modified: Sat, {day:02} Feb 2020 10:11:12 GMT\r\n"
        )
    };
    let constant = "ETag: \"1-2dc6c0\"\r\nDate: Sun, 06 Nov 2022 08:50:37 GMT\r\n\
                    Last-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
    let cases = [
        ("ETag: \"1\"\r\n".to_owned(), String::new()),
        (dated(1), String::new()),
        (format!("ETag: \"1\"\r\n{}", dated(1)), dated(2)),
        (format!("ETag: W/\"1\"\r\n{}", dated(1)), format!("ETag: W/\"2\"\r\n{}", dated(1))),
        (constant.to_owned(), constant.to_owned()),
    ];
    for (first, later) in cases {
        for words in [&["--connections=1"][..], &["--connections=3"], &["--retries=0"]] {
            let (first, later) = (first.clone(), later.clone());
            let server = LyingServer::new(move |asked, stream| {
                let (lines, letter, most) =
                    if asked.turn == 0 { (&first, b'a', LEN / 2) } else { (&later, b'b', LEN) };
                let (from, to) = asked.range().unwrap_or((0, None));
                let body = vec![letter; to.unwrap_or(LEN) - from];
                let last = from + body.len() - 1;
                let head = format!(
                    "HTTP/1.1 206 X\r\nContent-Range: bytes {from}-{last}/{LEN}\r\n\
                     Content-Length: {}\r\n{lines}\r\n",
                    body.len()
                );
                send(stream, &(head, body), most);
            });
            let scratch = Scratch::new();
            let path = scratch.join("f");
            let fetch = || {
                run(thalweg().args(["fetch", "--quiet", &server.url("x")]).args(words).arg(&path))
            };
            if fetch().code() != 0 {
                assert!(!path.exists());
                fetch();
            }
            let found = fs::read(&path).unwrap_or_default();
            assert!(found.iter().all(|byte| *byte == b'b'), "{words:?} {:?}", server.asked());
        }
    }
}

/// No process listens on port 1.
#[test]
fn a_server_that_cannot_be_reached_is_retried_only_if_that_is_asked_for() {
    let scratch = Scratch::new();
    for (words, proxy) in [
        (&["http://127.0.0.1:1/x"][..], ""),
        (&["-r", "http://127.0.0.1:1/x/"], ""),
        (&["--json", "--sums", "http://127.0.0.1:1/sums", "http://127.0.0.1:1/x"], ""),
        (&["http://127.0.0.1:1/x", "http://127.0.0.1:1/y"], ""),
        (&["http://192.0.2.1/x"], "http://127.0.0.1:1"),
    ] {
        let fetch = |more: &[&str]| {
            let mut command = thalweg();
            command.arg("fetch").args(more).args(words).current_dir(scratch.path());
            run(command.env("http_proxy", proxy)).expect(1)
        };
        let ran = fetch(&[]);
        ran.expect_said("127.0.0.1:1: Connection refused");
        ran.expect_said("--retries 5 waits for a server that is starting");
        assert!(!ran.said().contains("retrying in"), "{words:?}: {}", ran.said());
        assert_eq!(names(scratch.path()), Vec::<String>::new(), "{words:?}");
        // thalweg requests a list of digests only once.
        if !words.contains(&"--sums") {
            fetch(&["--retries=1"]).expect_said("retrying in");
        }
    }
}

/// Makes a file with an owner, a mode, an ACL and an extended attribute, and returns these properties as text. Returns
/// `None` if that fails.
fn attributed(path: &Path, owner: &str) -> Option<String> {
    let script = "echo old >\"$1\"; chown $2:100 \"$1\" && chmod 640 \"$1\" && \
                  setfacl -m u:65534:r \"$1\" && setfattr -n user.k -v v \"$1\"";
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(path).arg(owner).status().unwrap();
    made.success().then(|| attributes(path))
}

fn attributes(path: &Path) -> String {
    let script = "stat -c '%u %g %a' \"$1\"; getfacl -cn \"$1\"; getfattr -dm - \"$1\"";
    let shown = Command::new("sh").args(["-c", script, "sh"]).arg(path).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn a_file_that_is_replaced_leaves_owner_mode_acl_and_extended_attributes_to_the_new_one() {
    let test = "a_file_that_is_replaced_leaves_owner_mode_acl_and_extended_attributes";
    if !is_root(test) || !has_tools(test, &["setfacl", "getfacl", "setfattr", "getfattr"]) {
        return;
    }
    let bytes = bytes::of(3, 5000);
    let own = bytes.clone();
    let server =
        LyingServer::new(move |asked, stream| send(stream, &honest(asked, &own, "\"a\""), LEN));
    let scratch = Scratch::new();
    let Some(before) = attributed(&scratch.join("f"), "1000") else {
        skip(test, "no ACL or no extended attributes in the scratch directory");
        return;
    };
    let fetch = |url: &str, more: &[&str]| {
        run(thalweg().args(["fetch", url]).args(more).current_dir(scratch.path())).expect(0)
    };
    fetch(&server.url("x"), &["f"]);
    assert_eq!(
        (fs::read(scratch.join("f")).unwrap(), attributes(&scratch.join("f"))),
        (bytes, before.clone())
    );
    fetch(&server.url("f"), &["--force"]);
    assert_eq!(attributes(&scratch.join("f")), before);
    // A fetched tree gets the modes that the server lists.
    let shared = scratch.folder("shared");
    for name in ["small", "big"] {
        bytes::write(&shared.join(name), 4, if name == "small" { 100 } else { 20 << 20 });
        run(Command::new("chmod").arg("640").arg(shared.join(name))).expect(0);
    }
    let there = scratch.folder("there");
    let before = ["small", "big"].map(|name| attributed(&there.join(name), "0").unwrap());
    let served = Served::on(&shared);
    fetch(&served.at(""), &["-r", "there"]);
    for (name, before) in ["small", "big"].into_iter().zip(before) {
        assert_eq!(attributes(&there.join(name)), before, "{name}");
        assert!(fs::metadata(there.join(name)).unwrap().len() > 4);
    }
}

#[test]
fn a_body_without_end_stops_where_the_destination_does() {
    if !has_tools("a_body_without_end_stops", &["prlimit"]) {
        return;
    }
    for head in ["Transfer-Encoding: chunked\r\n", ""] {
        let server = LyingServer::new(move |_, stream| {
            drop(stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes()));
            let chunk = [b"10000\r\n", &*vec![b'x'; 0x10000], b"\r\n"].concat();
            while stream.write_all(&chunk).is_ok() {}
        });
        let scratch = Scratch::new();
        let mut limited = wrapped(&["prlimit", "--fsize=1000000", "--"]);
        let ran = run(limited.args(["fetch", &server.url("x")]).arg(scratch.join("f"))).expect(1);
        ran.expect_said("ulimit -f");
        assert!(names(scratch.path()).is_empty());
    }
}

#[test]
fn exit_codes_say_what_went_wrong() {
    let server = LyingServer::new(|asked, stream| {
        let text = if asked.path == "/no" { "404 Not Found" } else { "200 OK" };
        let head = format!("HTTP/1.1 {text}\r\nContent-Length: 2\r\n\r\n");
        send(stream, &(head, b"ab".to_vec()), 2);
    });
    let scratch = Scratch::new();
    let fetch =
        |words: &[&str]| run(thalweg().arg("fetch").args(words).current_dir(scratch.path()));
    let (yes, no) = (server.url("yes"), server.url("no"));
    let printed = fetch(&[&yes, "-"]).expect(0);
    assert_eq!(printed.stdout, b"ab");
    printed.expect_said("fetched to standard output (2 B)");
    fetch(&[&no]).expect(1).expect_said("404");
    fetch(&["host/x"]).expect(2).expect_said("http://");
    fetch(&["gopher://host/x"]).expect(4).expect_said("gopher");
    fetch(&[&server.url("")]).expect(2).expect_said("contains no file name");
    fetch(&[&server.url(".bashrc")]).expect(2).expect_said("contains no file name");
    fetch(&[&yes, "--sha256", &"0".repeat(64)]).expect(1).expect_said("the file was not saved");
    assert!(names(scratch.path()).is_empty());
    fetch(&[&yes, &server.url("also")]).expect(0);
    fetch(&[&yes]).expect(1).expect_said("--force");
    fetch(&["--force", &yes, &no, "."]).expect(1);
    assert_eq!(names(scratch.path()), ["also", "yes"]);
    fetch(&[&yes, &no, "nowhere"]).expect(2);
    let odd = OsStr::from_bytes(b"\xff");
    run(thalweg().args(["fetch", &yes]).arg(odd).current_dir(scratch.path())).expect(0);
    assert!(scratch.path().join(odd).exists());
    let other = server.url("other/yes");
    fetch(&["--force", &yes, &other, "."]).expect(2).expect_said("would have the same name");
}

#[test]
fn servers_that_others_wrote_are_fetched_from() {
    if !has_tools("servers_that_others_wrote_are_fetched_from", &["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let bytes = bytes::of(3, LEN);
    fs::write(scratch.join("source"), &bytes).unwrap();
    let mut python = Command::new("python3");
    python
        .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
        .current_dir(scratch.path());
    let mut python = python.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(python.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.split(" port ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let url = format!("http://127.0.0.1:{port}/source");
    let ran = run(thalweg().args(["fetch", &url]).arg(scratch.join("f")));
    drop(python.kill());
    drop(python.wait());
    ran.expect(0);
    assert!(fs::read(scratch.join("f")).unwrap() == bytes);
}

const OVER_TLS: &str = "
import http.server, ssl
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/away':
            self.send_response(302); self.send_header('Location', 'http://localhost/x'); self.end_headers()
            return
        body = open('source', 'rb').read()
        first = int(self.headers['Range'][6:-1])
        self.send_response(206)
        self.send_header('ETag', chr(34) + 'a' + chr(34))
        self.send_header('Content-Length', str(len(body) - first))
        self.send_header('Content-Range', f'bytes {first}-{len(body) - 1}/{len(body)}')
        self.end_headers()
        self.wfile.write(body[first:])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";

#[test]
fn over_tls_a_file_is_whole_and_a_server_that_proves_nothing_gets_no_request() {
    if !has_tools("over_tls_a_file_is_whole", &["python3", "openssl", "prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let bytes = bytes::of(5, LEN);
    fs::write(scratch.join("source"), &bytes).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-keyout", "key.pem", "-out", "cert.pem"]).current_dir(scratch.path());
    run(&mut openssl).expect(0);
    let mut python = Command::new("python3");
    python.args(["-c", OVER_TLS]).current_dir(scratch.path());
    let mut python = python.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(python.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let url = |host: &str, path: &str| format!("https://{host}:{}/{path}", port.trim());
    let (path, cert) = (scratch.join("f"), scratch.join("cert.pem"));
    let fetch = |mut command: Command, url: &str, cert: Option<&Path>| {
        command.args(["fetch", "--json", url]).arg(&path);
        command.args(cert.iter().map(|cert| format!("--cacert={}", cert.display())));
        run(&mut command)
    };
    let limited = wrapped(&["prlimit", "--fsize=1000000", "--"]);
    let ran = [
        fetch(limited, &url("localhost", "x"), Some(&cert)),
        fetch(thalweg(), &url("localhost", "x"), Some(&cert)),
        fetch(thalweg(), &url("localhost", "x"), None),
        fetch(thalweg(), &url("127.0.0.1", "x"), Some(&cert)),
        fetch(thalweg(), &url("localhost", "away"), Some(&cert)),
    ];
    drop(python.kill());
    drop(python.wait());
    let [first, second, unknown, misnamed, away] = ran;
    first.expect(3);
    assert_eq!(second.expect(0).json()["bytes"], LEN as u64 - 1_000_000);
    assert!(fs::read(&path).unwrap() == bytes);
    // On a machine without certificates of authorities, thalweg reports this instead.
    assert!(matches!(unknown.code(), 1 | 4), "{}", unknown.said());
    misnamed.expect(1).expect_said("TLS connection to");
    away.expect(1).expect_said("not followed");
}

#[test]
fn a_path_that_is_not_utf_8_can_be_a_destination_and_a_list_of_hashes() {
    let scratch = Scratch::new();
    let web = scratch.folder("web");
    fs::write(web.join("x"), "text").unwrap();
    let sums = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1  x\n";
    let server = Served::on(&web);
    let name = |text: &'static [u8]| scratch.path().join(OsStr::from_bytes(text));
    fs::write(name(b"sums\xe9"), sums).unwrap();
    fs::create_dir(name(b"into\xe9")).unwrap();
    let fetch = |options: &[&OsStr], url: &OsStr, to: &Path| {
        run(thalweg().arg("fetch").args(options).arg(url).arg(to))
    };
    let (file, tree) = (server.at("x"), server.at(""));
    let (file, tree) = (OsStr::new(&file), OsStr::new(&tree));
    fetch(&[], file, &name(b"caf\xe9")).expect(0);
    let list = name(b"sums\xe9");
    let said = fetch(&["--sums".as_ref(), list.as_os_str()], file, &name(b"into\xe9")).expect(0);
    said.expect_said("sha256 verified");
    fetch(&["-r".as_ref()], tree, &name(b"tree\xe9")).expect(0);
    for copy in [&b"caf\xe9"[..], b"into\xe9/x", b"tree\xe9/x"] {
        assert_eq!(fs::read(name(copy)).unwrap(), b"text", "{}", copy.escape_ascii());
    }
    let url = OsStr::from_bytes(b"http://127.0.0.1/caf\xe9");
    fetch(&[], url, &scratch.join("f")).expect(2).expect_said("not a valid URL: it is not UTF-8");
}
