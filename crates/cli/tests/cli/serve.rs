//! `thalweg serve` with typical options and clients.

use crate::support;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use support::{Scratch, skip};

/// A server that is killed with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(scratch: &Scratch, args: &[&str]) -> Self {
        Self::of(scratch.thalweg(["serve"].iter().chain(args)))
    }

    fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal to the server, and returns its exit code and its standard error.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn bytes() -> Vec<u8> {
    (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn what_was_cut_is_finished_by_the_clients_people_have() {
    let clients: [(&str, &[&str]); 2] =
        [("curl", &["-sS", "-C", "-", "-o"]), ("wget", &["-q", "-c", "-O"])];
    for (client, args) in clients {
        if !is_there(client) {
            skip("serve: resume", &format!("no {client}"));
            continue;
        }
        let scratch = Scratch::new();
        scratch.file("dir/file", bytes());
        scratch.file("got", &bytes()[..1_000_000]);
        let server = Server::start(&scratch, &["dir", "-l", "0", "--log", "json", "--zero-copy"]);
        let mut command = Command::new(client);
        command.args(args).arg(scratch.path("got")).arg(format!("{}file", server.address));
        assert!(command.env_remove("http_proxy").status().unwrap().success(), "{client}");
        assert!(scratch.read("got") == bytes(), "{client}");
        let (code, said) = server.end(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("\"status\":206"), "{client}: {said}");
    }
}

#[test]
fn pythons_client_reads_every_answer() {
    if !is_there("python3") {
        return skip("serve: http.client", "no python3");
    }
    let scratch = Scratch::new();
    scratch.file("dir/file", bytes());
    let server = Server::start(&scratch, &["dir", "-l", "0", "--log", "none"]);
    let script = "
import http.client, sys, urllib.parse
whole = open(sys.argv[2], 'rb').read()
at = urllib.parse.urlparse(sys.argv[1])
c = http.client.HTTPConnection(at.hostname, at.port)
def ask(method, path, **fields):
    c.request(method, path, headers={k.replace('_', '-'): v for k, v in fields.items()})
    r = c.getresponse()
    return r.status, r.read(), r
s, b, r = ask('GET', '/file'); assert (s, b == whole) == (200, True)
tag = r.headers['ETag']
assert ask('HEAD', '/file')[:2] == (200, b'')
assert ask('GET', '/file', If_None_Match=tag)[:2] == (304, b'')
assert ask('GET', '/file', Range='bytes=5-9')[:2] == (206, whole[5:10])
assert ask('GET', '/none')[0] == 404
s, b, r = ask('GET', '/?manifest'); assert s == 200 and b.startswith(b'thwglist')
import email.parser, email.policy
s, b, r = ask('GET', '/file', Range='bytes=0-99,2000000-2000099')
text = b'Content-Type: ' + r.headers['Content-Type'].encode() + b'\\r\\n\\r\\n' + b
m = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(text)
assert m.is_multipart() and [p['Content-Range'] for p in m.iter_parts()] == [
    'bytes 0-99/3000000', 'bytes 2000000-2000099/3000000']
";
    let mut command = Command::new("python3");
    command.args(["-c", script, &server.address]).arg(scratch.path("dir/file"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_interrupt_finishes_and_a_second_one_does_not_wait() {
    let scratch = Scratch::new();
    let large = fs::File::create(scratch.path("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    let mut server = Server::start(&scratch, &[".", "-l", "0", "--grace", "10m"]);
    let address = server.address["http://".len()..].trim_end_matches('/').to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    server.signal(Signal::TERM);
    let said = BufReader::new(server.child.stderr.as_mut().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("Only this machine can connect; use --listen :"));
    assert!(lines.next().unwrap().starts_with("methods for files above 64.0 KiB: "));
    let line = lines.next().unwrap();
    assert!(line.contains("finishing responses"), "{line}");
    let (code, _) = server.end(Signal::TERM);
    assert_eq!(code, Some(143));
}

#[test]
fn a_hangup_has_the_profile_read_again_and_cuts_nothing() {
    let scratch = Scratch::new();
    scratch.file("dir/file", bytes());
    let profile = scratch.path("profile.json");
    let mut command = scratch.thalweg(["serve", "dir", "-l", "0", "--log", "none"]);
    command.env("THALWEG_PROFILE", &profile).stdin(Stdio::null());
    let mut server = Server::of(command);
    let address = server.address["http://".len()..].trim_end_matches('/').to_owned();
    let mut client = TcpStream::connect(&address).unwrap();
    client.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    // The first line lists the machines that can connect, the second one the methods.
    for _ in 0..2 {
        said.read_line(&mut String::new()).unwrap();
    }
    let mut hang_up = |server: &Server| {
        server.signal(Signal::HUP);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    assert!(hang_up(&server).contains("profile: none"));
    thalweg_core::Profile::new().save(&profile).unwrap();
    assert!(hang_up(&server).contains("reloaded"));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&bytes()[2_000_000..]));
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_that_is_gone_ends_the_server_wherever_its_input_is_from() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    if !is_there("setsid") {
        return skip("serve: a terminal of its own", "no setsid");
    }
    let scratch = Scratch::new();
    scratch.file("dir/file", "text");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let name = std::path::Path::new(std::str::from_utf8(name.as_bytes()).unwrap());
    let mut command = Command::new("setsid");
    let line = "exec \"$0\" serve dir -l 0 --log none --no-profile < /dev/null";
    command.args(["--ctty", "sh", "-c", line]).arg(env!("CARGO_BIN_EXE_thalweg"));
    let mut options = fs::OpenOptions::new();
    let options = std::os::unix::fs::OpenOptionsExt::custom_flags(
        options.read(true).write(true),
        rustix::fs::OFlags::NOCTTY.bits() as i32,
    );
    command.current_dir(scratch.path(".")).stdin(options.open(name).unwrap());
    let mut server = Server::of(command);
    drop(terminal);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn options_are_tried_without_serving() {
    let scratch = Scratch::new();
    scratch.file("file", "");
    let ran = scratch.run(&["serve", "file", "--listen", "0", "--check"]);
    assert_eq!((ran.code, &*ran.out), (0, &b""[..]));
    let ran = scratch.run(&["serve", "none", "--check"]);
    assert!(ran.code == 1 && ran.err.contains("cannot open 'none'"), "{}", ran.err);
    // Opening a FIFO without O_NONBLOCK would block until another process opens it for writing.
    rustix::fs::mkfifoat(rustix::fs::CWD, scratch.path("fifo"), 0o600.into()).unwrap();
    let ran = scratch.run(&["serve", "fifo", "--check"]);
    assert!(ran.code == 1 && ran.out.is_empty(), "{}", ran.err);
    let server = Server::start(&scratch, &[".", "-l", "0"]);
    let taken = server.address["http://".len()..].trim_end_matches('/');
    let ran = scratch.run(&["serve", "--listen", taken, "--check"]);
    assert!(ran.code == 1 && ran.err.contains("cannot listen on"), "{}", ran.err);
}

#[test]
fn a_server_without_descriptors_serves_again_once_it_has_some() {
    let scratch = Scratch::new();
    scratch.file("dir/file", "text");
    let mut command = Command::new("bash");
    let line =
        "ulimit -n 32; exec \"$0\" serve dir -l 0 --threads 1 --max-connections 1000 --log none";
    command.args(["-c", line]).arg(env!("CARGO_BIN_EXE_thalweg")).current_dir(scratch.path("."));
    let server = Server::of(command);
    let address = server.address["http://".len()..].trim_end_matches('/').to_owned();
    let connect = || TcpStream::connect(&address).unwrap();
    let idle: Vec<TcpStream> = (0..60).map(|_| connect()).collect();
    let ask = |mut connection: TcpStream| {
        connection.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
        connection
    };
    let answer_to = |mut asked: TcpStream| {
        let mut answer = String::new();
        asked.read_to_string(&mut answer).unwrap();
        answer
    };
    let waiting = ask(connect());
    drop(idle);
    let mut answer = answer_to(waiting);
    // The server may read the request before it knows that the others have closed, and then has no descriptor for the file.
    let began = Instant::now();
    while answer.starts_with("HTTP/1.1 503 ") && began.elapsed() < Duration::from_secs(60) {
        assert!(answer.contains("\r\nRetry-After: "), "{answer}");
        thread::sleep(Duration::from_millis(5));
        answer = answer_to(ask(connect()));
    }
    assert!(answer.ends_with("\r\n\r\ntext"), "{answer}");
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_socket_of_the_service_manager_is_served_and_stays() {
    let program = "systemd-socket-activate";
    if !is_there(program) {
        return skip("serve: LISTEN_FDS", &format!("no {program}"));
    }
    let scratch = Scratch::new();
    scratch.file("dir/file", "text");
    let name = scratch.path("socket");
    let mut command = Command::new(program);
    command.arg("-l").arg(&name).arg(env!("CARGO_BIN_EXE_thalweg")).args(["serve", "dir"]);
    command.current_dir(scratch.path(".")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut manager = command.spawn().unwrap();
    // The manager starts the server at the first connection.
    let mut client = loop {
        match UnixStream::connect(&name) {
            Ok(client) => break client,
            Err(_) => assert!(manager.try_wait().unwrap().is_none(), "{program} has ended"),
        }
    };
    client.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\ntext"), "{answer}");
    // systemd-socket-activate has replaced itself with the server by execve(2), so the server has its process ID.
    kill_process(Pid::from_child(&manager), Signal::TERM).unwrap();
    assert!(manager.wait().unwrap().success() && name.exists());
}

#[test]
fn how_a_file_would_be_sent_is_explained_without_serving() {
    let scratch = Scratch::new();
    scratch.file("dir/small", "text");
    scratch.file("dir/large", bytes());
    let ran = scratch.run(&["serve", "dir", "--explain", "small"]);
    let text = String::from_utf8_lossy(&ran.out);
    assert!(ran.code == 0 && text.contains("one system call"), "{text}{}", ran.err);
    let ran = scratch.run(&["serve", "dir", "--explain", "large", "--no-profile"]);
    let text = String::from_utf8_lossy(&ran.out).into_owned();
    assert!(ran.code == 0 && text.contains("reason: "), "{text}{}", ran.err);
    let ran = scratch.run(&["serve", "dir/large", "--explain", "large", "--zero-copy", "--json"]);
    assert_eq!(ran.code, 2, "there is no JSON of it");
    for (path, word) in [("none", "404"), ("../dir/small", "404"), (".", "directory")] {
        let ran = scratch.run(&["serve", "dir", "--explain", path]);
        assert!(ran.code == 1 && ran.err.contains(word), "{path}: {}", ran.err);
    }
}

#[test]
fn root_becomes_the_requested_user_before_it_serves() {
    let scratch = Scratch::new();
    scratch.file("dir/open", "text");
    scratch.file("dir/closed", "secret");
    let ran = scratch.run(&["serve", "dir", "-l", "0", "--user", "no-such-user-here"]);
    assert!(ran.code == 2 && ran.err.contains("no such user"), "{}", ran.err);
    if !rustix::process::geteuid().is_root() {
        return skip("serve: --user", "not root");
    }
    let mode = |name: &str, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(scratch.path(name), permissions).unwrap();
    };
    mode("dir", 0o755);
    mode("dir/open", 0o644);
    mode("dir/closed", 0o600);
    let server = Server::start(&scratch, &["dir", "-l", "0", "--user", "nobody", "--log", "none"]);
    let get = |name: &str| {
        let at = server.address["http://".len()..].trim_end_matches('/');
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("open").ends_with("\r\n\r\ntext"));
    assert!(get("closed").starts_with("HTTP/1.1 403 "));
    // No thread has user ID 0 (real, effective, saved or file system) or group 0 any more.
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        // A thread may end in the meantime.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert!(!line.split_whitespace().any(|id| id == "0"), "{line}");
        let groups = status.lines().find(|line| line.starts_with("Groups:")).unwrap();
        assert!(!groups.split_whitespace().any(|id| id == "0"), "{groups}");
        threads += 1;
    }
    assert!(threads > 1);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_request_forges_no_field_of_a_line_of_the_log() {
    let scratch = Scratch::new();
    scratch.file("dir/file", "text");
    let server = Server::start(&scratch, &["dir", "-l", "0", "--log", "text"]);
    let address = server.address["http://".len()..].trim_end_matches('/').to_owned();
    let targets: [&[u8]; 6] = [
        b"/a\" 200 5 1.0ms\" \"",
        b"/back\\slash\\x22",
        b"/\x1b[31m",
        b"/\xff\xfe",
        "/\u{202e}\u{e9}".as_bytes(),
        b"/\x7f",
    ];
    for target in targets {
        let mut stream = TcpStream::connect(&address).unwrap();
        let request = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\nX: \"\\\x1b\r\n\r\n"].concat();
        stream.write_all(&request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
    }
    let (_, said) = server.end(Signal::TERM);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("GET ")).collect();
    assert_eq!(lines.len(), targets.len(), "{said}");
    for line in &lines {
        assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~' | 0x80..)), "{line:?}");
        assert_eq!(line.matches('"').count(), 2, "{line}");
        let request = line.split('"').nth(1).unwrap();
        assert!(request.is_ascii(), "{request}");
        // Every backslash begins an escape of a byte.
        for escape in request.split('\\').skip(1) {
            let digits = escape.strip_prefix('x').and_then(|rest| rest.get(..2));
            assert!(digits.is_some_and(|d| u8::from_str_radix(d, 16).is_ok()), "{request}");
        }
    }
    assert!(lines[1].contains(r"GET /back\x5Cslash\x5Cx22 HTTP/1.1"), "{}", lines[1]);
}

#[test]
fn a_reader_of_the_log_that_stalls_does_not_delay_the_end() {
    let scratch = Scratch::new();
    scratch.file("dir/file", "text");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command =
        scratch.thalweg(["serve", "dir", "-l", "0", "--log", "text", "--grace", "1s"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::from(writer)).spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap()["http://".len()..].trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    // More lines than the pipe holds.
    for _ in 0..200 {
        stream.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        while !line.ends_with("text") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0].into());
        }
        line.clear();
    }
    let mut server = Server { child, address: String::new() };
    server.signal(Signal::TERM);
    let began = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    drop(reader);
}

#[test]
fn the_unit_of_systemd_is_confined_and_its_memory_limited() {
    const MOST: f64 = 2.0;
    let test = "the_unit_of_systemd_is_confined";
    let unit = include_str!("../../thalweg-serve@.service");
    assert!(unit.lines().any(|line| line.starts_with("MemoryMax=")));
    let scratch = Scratch::new();
    scratch.file("thalweg-serve@srv.service", unit.replace("@PREFIX@", "/usr"));
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager", "thalweg-serve@srv.service"]);
    let Ok(ran) = command.current_dir(scratch.path(".")).env("LC_ALL", "C").output() else {
        return skip(test, "no systemd-analyze");
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let Some(line) = said.lines().find(|line| line.contains("Overall exposure level")) else {
        // systemd-analyze has the option --offline since version 250.
        let why = String::from_utf8_lossy(&ran.stderr).into_owned();
        return skip(test, &format!("systemd-analyze does not look at a file: {}", why.trim()));
    };
    let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    println!("{line}");
    assert!(level.is_some_and(|level| level < MOST), "{said}");
}
