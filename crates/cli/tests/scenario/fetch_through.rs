//! `thalweg fetch` through proxies, with user names and passwords from ~/.netrc, and with lists of digests.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::fetches::liar::{self, LyingServer, honest, send};
use crate::support::{Scratch, bytes, names, run, skip::has_tools, thalweg};
use thalweg_testing::ReservedPort;

const LEN: usize = 300_000;

/// A proxy that forwards all data and records the headers of the requests. It ends with the process.
struct Proxy(u16, Arc<Mutex<Vec<String>>>);

impl Proxy {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let all = heads.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let all = all.clone();
                thread::spawn(move || hand_on(stream, &all));
            }
        });
        Self(port, heads)
    }

    fn heads(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

fn hand_on(mut client: TcpStream, heads: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match client.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let text = String::from_utf8(head).unwrap();
    heads.lock().unwrap().push(text.clone());
    if text.contains("Basic d3Jvbmc6") {
        let no = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        return drop(client.write_all(no));
    }
    let (method, rest) = text.split_once(' ').unwrap();
    let host = match method {
        "CONNECT" => rest.split(' ').next().unwrap(),
        _ => rest.strip_prefix("http://").unwrap().split('/').next().unwrap(),
    };
    let mut server = TcpStream::connect(host).unwrap();
    if method == "CONNECT" {
        client.write_all(b"HTTP/1.1 200 Established\r\n\r\n").unwrap();
    } else {
        let own = text.replacen(&format!("http://{host}"), "", 1);
        let lines = own.split_inclusive("\r\n").filter(|line| !line.starts_with("Proxy-"));
        server.write_all(lines.collect::<String>().as_bytes()).unwrap();
    }
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || pour(&mut from, &mut to));
    pour(&mut server, &mut client);
}

fn pour(from: &mut TcpStream, to: &mut TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

fn server(bytes: &[u8]) -> LyingServer {
    let own = bytes.to_vec();
    LyingServer::new(move |asked, stream| send(stream, &honest(asked, &own, "\"a\""), LEN))
}

#[test]
fn a_proxy_of_the_environment_is_asked_unless_the_server_is_excepted() {
    let scratch = Scratch::new();
    let bytes = bytes::of(1, LEN);
    let (server, proxy) = (server(&bytes), Proxy::new());
    let path = scratch.join("f");
    let fetch = |address: &str, no: &str| {
        let mut command = thalweg();
        command.args(["fetch", &server.url("x")]).arg(&path);
        run(command.env("http_proxy", address).env("no_proxy", no))
    };
    let address = format!("http://user:secret@127.0.0.1:{}", proxy.0);
    fetch(&address, "").expect(0);
    assert!(fs::read(&path).unwrap() == bytes);
    let heads = proxy.heads();
    assert!(heads[0].starts_with(&format!("GET {} HTTP/1.1\r\n", server.url("x"))), "{heads:?}");
    assert!(heads[0].contains("Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"), "{heads:?}");
    assert_eq!(server.asked()[0].get("proxy-authorization"), None);
    fetch(&address, "127.0.0.0/8").expect(0);
    assert_eq!(proxy.heads().len(), 1);
    let no = fetch(&format!("http://wrong:x@127.0.0.1:{}", proxy.0), "").expect(1);
    no.expect_said("407");
    assert!(!no.said().contains("wrong"), "{}", no.said());
    fetch("socks5://127.0.0.1:1", "").expect(4).expect_said("socks5");
    fetch("http://127.0.0.1:1", "localhost").expect(1).expect_said("the proxy 127.0.0.1:1");
}

/// `openssl s_server` for the files of a directory, with a certificate that is valid for `days` days. Dropping this
/// ends the server.
struct Secure(Child, ReservedPort);

impl Secure {
    fn new(folder: &Path, days: &str) -> Self {
        Self::with_certificate(folder, days, ("localhost", "FALSE"))
    }

    /// `is_authority`: TRUE or FALSE, in the certificate's basic constraints.
    fn with_certificate(folder: &Path, days: &str, (name, is_authority): (&str, &str)) -> Self {
        let openssl = |words: &[&str]| {
            run(Command::new("openssl").args(words).current_dir(folder)).expect(0);
        };
        let request = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"];
        openssl(&[&request[..], &["-keyout", "key.pem", "-out", "request.pem"]].concat());
        let extensions =
            format!("subjectAltName=DNS:{name}\nbasicConstraints=critical,CA:{is_authority}\n");
        fs::write(folder.join("extensions"), extensions).unwrap();
        let sign = ["x509", "-req", "-in", "request.pem", "-signkey", "key.pem", "-days", days];
        openssl(&[&sign[..], &["-extfile", "extensions", "-out", "cert.pem"]].concat());
        let port = ReservedPort::new();
        let mut server = Command::new("openssl");
        server.args(["s_server", "-quiet", "-WWW", "-accept", &port.number.to_string()]);
        server.args(["-key", "key.pem", "-cert", "cert.pem"]).current_dir(folder);
        let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(("localhost", port.number)).is_err() {
            assert_eq!(server.try_wait().unwrap(), None, "openssl has ended");
            thread::sleep(Duration::from_millis(20));
        }
        Self(server, port)
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_certificate_that_has_expired_is_not_trusted() {
    if !has_tools("a_certificate_that_has_expired", &["openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.join("file"), "x").unwrap();
    let server = Secure::new(scratch.path(), "-1");
    let mut command = thalweg();
    command.args(["fetch", &format!("https://localhost:{}/file", server.1.number)]);
    command.arg(scratch.join("f")).arg("--cacert").arg(scratch.join("cert.pem"));
    let ran = run(&mut command).expect(1);
    ran.expect_said("TLS connection to");
    ran.expect_said("the certificate has expired");
    assert!(!scratch.join("f").exists());
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_trusted_if_cacert_names_it_and_all_else_is_right() {
    if !has_tools("a_self_signed_certificate_of_an_authority", &["openssl"]) {
        return;
    }
    for (days, name, code) in [("9", "localhost", 0), ("9", "other", 1), ("-1", "localhost", 1)] {
        let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
        fs::write(scratch.join("file"), "x").unwrap();
        let server = Secure::with_certificate(scratch.path(), days, (name, "TRUE"));
        let fetch = |certificate: &Path| {
            let mut command = thalweg();
            command.args(["fetch", &format!("https://localhost:{}/file", server.1.number)]);
            run(command.arg(scratch.join("f")).arg("--cacert").arg(certificate))
        };
        fetch(&scratch.join("cert.pem")).expect(code);
        assert_eq!(scratch.join("f").exists(), code == 0);
        let _other = Secure::with_certificate(elsewhere.path(), "9", ("localhost", "TRUE"));
        fetch(&elsewhere.join("cert.pem")).expect(1).expect_said("TLS connection to");
    }
}

#[test]
fn https_goes_through_a_tunnel_and_is_none_of_the_proxys_business() {
    if !has_tools("https_goes_through_a_tunnel", &["openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.join("file"), bytes::of(2, LEN)).unwrap();
    let server = Secure::new(scratch.path(), "9");
    let port = server.1.number;
    let proxy = Proxy::new();
    let mut command = thalweg();
    command.args(["fetch", &format!("https://localhost:{port}/file")]).arg(scratch.join("f"));
    command.arg("--cacert").arg(scratch.join("cert.pem"));
    let ran = run(command.env("https_proxy", format!("127.0.0.1:{}", proxy.0)));
    ran.expect(0);
    assert!(fs::read(scratch.join("f")).unwrap() == bytes::of(2, LEN));
    let heads = proxy.heads();
    assert!(heads[0].starts_with(&format!("CONNECT localhost:{port} HTTP/1.1\r\n")), "{heads:?}");
    assert!(!heads.concat().contains("GET"));
}

#[test]
fn the_user_of_netrc_is_sent_to_its_server_if_no_other_user_may_read_the_file() {
    let scratch = Scratch::new();
    let bytes = bytes::of(3, LEN);
    let server = server(&bytes);
    let netrc = scratch.join(".netrc");
    fs::write(&netrc, "machine 127.0.0.1 login me password \"a b\"\n").unwrap();
    let fetch = |mode: u32, words: &[&str]| {
        fs::set_permissions(&netrc, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = thalweg();
        command.args(["fetch", "--force", &server.url("x")]).args(words);
        run(command.env("HOME", scratch.path()).current_dir(scratch.path()))
    };
    fetch(0o600, &[]).expect(0);
    fetch(0o600, &["--header", "Authorization: Bearer t"]).expect(0);
    fetch(0o600, &["--no-netrc"]).expect(0);
    fetch(0o644, &["--no-netrc"]).expect(0);
    fetch(0o644, &[]).expect(2).expect_said("other users can read the file");
    let asked = server.asked();
    let told: Vec<_> = asked.iter().map(|asked| asked.get("authorization")).collect();
    assert_eq!(told, [Some("Basic bWU6YSBi"), Some("Bearer t"), None, None]);
}

#[test]
fn files_must_have_the_digests_of_a_list() {
    if !has_tools("files_must_have_the_digests_of_a_list", &["sha256sum"]) {
        return;
    }
    let scratch = Scratch::new();
    let bytes = bytes::of(4, LEN);
    let shared = scratch.folder("shared");
    fs::write(shared.join("a"), &bytes).unwrap();
    fs::write(shared.join("b"), "b").unwrap();
    let sums = run(Command::new("sha256sum").args(["a", "b"]).current_dir(&shared)).expect(0);
    let (sums, own) = (sums.stdout.clone(), bytes.clone());
    let list = sums.clone();
    let server = LyingServer::new(move |asked, stream| match asked.path.as_str() {
        "/SHA256SUMS" => send(stream, &(liar::full(list.len(), "\"s\""), list.clone()), LEN),
        "/b" => send(stream, &honest(asked, b"x", "\"b\""), LEN),
        _ => send(stream, &honest(asked, &own, "\"a\""), LEN),
    });
    let place = scratch.folder("place");
    let fetch = |words: &[&str]| run(thalweg().arg("fetch").args(words).current_dir(&place));
    let (a, b, c) = (server.url("a"), server.url("b"), server.url("c"));
    let url = server.url("SHA256SUMS");
    fetch(&["--sums", &url, &a]).expect(0).expect_said("sha256 verified");
    fetch(&["--sums", &url, &b]).expect(1).expect_said("the file was not saved");
    fetch(&["--sums", &url, &c]).expect(2).expect_said("no digest for 'c'");
    fs::write(scratch.join("sums"), &sums).unwrap();
    let file = scratch.join("sums");
    fetch(&["--force", "--sums", file.to_str().unwrap(), &a, &b]).expect(1);
    fetch(&["--sums", "none", &a]).expect(1).expect_said("none");
    // Other systems and tools write lists with a byte order mark, tabs and CRLF.
    let text = String::from_utf8(sums).unwrap();
    let windows = format!("\u{feff}{}", text.replace("  ", "\t").replace('\n', "\r\n"));
    fs::write(&file, windows).unwrap();
    fetch(&["--force", "--sums", file.to_str().unwrap(), &a]).expect(0).expect_said(" verified");
    for (tool, hash) in [("md5sum", "MD5"), ("sha1sum", "SHA-1"), ("sha512sum", "SHA-512")] {
        let list = run(Command::new(tool).arg("a").current_dir(&shared)).expect(0).stdout.clone();
        let file = scratch.join(if hash == "MD5" { "MD5SUMS" } else { "sums" });
        fs::write(&file, list).unwrap();
        let said = fetch(&["--force", "--sums", file.to_str().unwrap(), &a]).expect(4);
        said.expect_said(&format!("the digest of 'a' is {hash}, but only"));
    }
    assert_eq!(names(&place), ["a"]);
}
