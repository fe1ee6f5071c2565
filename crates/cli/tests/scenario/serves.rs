//! `thalweg serve` with disks that do not respond, with thousands of clients, and behind another server.

use rustix::process::{Resource, getrlimit};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    Running, Scratch, Served, bytes,
    fuse::source::{Illness, NAME, SickSource},
    run::GUARD,
    shell, skip, thalweg,
};

/// Sends a request on a new connection, from which the caller reads the response.
fn ask(server: &Served, path: &str) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    stream
}

/// Returns the resident memory in bytes.
fn resident(server: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn text(mut stream: impl Read) -> String {
    let mut answer = Vec::new();
    // A reset ends the response early, so the error is ignored.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GUARD, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_disk_that_does_not_answer_delays_no_other_client() {
    const LEN: u64 = 3 << 20;
    // The disk never responds, or stops responding in the middle of the file.
    for silent_at in [0, 1 << 20] {
        let illness = Illness::SilentAt(silent_at);
        let test = "a_disk_that_does_not_answer_delays_no_other_client";
        let Some(sick) = SickSource::mount(test, illness, 1, LEN) else { return };
        let root = sick.folder().parent().unwrap().to_owned();
        fs::write(root.join("well"), "text").unwrap();
        let server = Served::with(&root, &["--threads", "1", "--log", "none"]);
        let name = format!("/{}/{NAME}", sick.folder().file_name().unwrap().to_str().unwrap());
        let hanging: Vec<TcpStream> = (0..3).map(|_| ask(&server, &name)).collect();
        until("nobody reads the file", || sick.is_waited_for());
        for _ in 0..100 {
            assert!(text(ask(&server, "/well")).ends_with("\r\n\r\ntext"));
        }
        // An earlier request on the same connection receives its response.
        let mut both = server.connect();
        let two =
            ["/well", name.as_str()].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        both.write_all(two.concat().as_bytes()).unwrap();
        let mut came = Vec::new();
        while !came.windows(8).any(|eight| eight == b"\r\n\r\ntext") {
            let mut some = [0; 4096];
            let count = both.read(&mut some).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&came));
            came.extend_from_slice(&some[..count]);
        }
        assert!(sick.is_waited_for());
        // The reads of the server end with its process, so that the disk can be unmounted.
        drop((server, hanging));
    }
}

#[test]
fn a_disk_that_fails_in_the_middle_leaves_the_answer_short() {
    const LEN: u64 = 3 << 20;
    for broken_at in [0, 1 << 20] {
        let test = "a_disk_that_fails_in_the_middle_leaves_the_answer_short";
        let Some(sick) = SickSource::mount(test, Illness::BrokenAt(broken_at), 1, LEN) else {
            return;
        };
        let server = Served::with(sick.folder(), &["--threads", "1", "--log", "none"]);
        let mut answer = Vec::new();
        let _ = ask(&server, &format!("/{NAME}")).read_to_end(&mut answer);
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = &answer[head..];
        assert!(body.len() as u64 <= broken_at);
        assert!(bytes::of(1, LEN as usize).starts_with(body));
        drop(server);
    }
}

#[test]
fn a_file_on_a_disk_that_says_nothing_of_its_cache_arrives_whole() {
    const LEN: u64 = 5_000_000;
    let test = "a_file_on_a_disk_that_says_nothing_of_its_cache_arrives_whole";
    let illness = Illness::SilentAt(u64::MAX);
    let Some(sick) = SickSource::mount(test, illness, 3, LEN) else { return };
    for args in [&[][..], &["--zero-copy", "--method", "sendfile"]] {
        let server = Served::with(sick.folder(), &[&["--log", "none"][..], args].concat());
        let mut answer = Vec::new();
        ask(&server, &format!("/{NAME}")).read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(&bytes::of(3, LEN as usize)), "{args:?}");
    }
}

#[test]
fn ten_thousand_idle_clients_hold_little_memory_and_delay_no_other_client() {
    const MOST: u64 = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX).min(limit.maximum.unwrap_or(u64::MAX));
    let count = MOST.min(room.saturating_sub(1000));
    if count < MOST {
        skip(
            "ten_thousand_idle_clients",
            &format!("only {count}: the limit of open files is {room}"),
        );
    }
    let scratch = Scratch::new();
    fs::write(scratch.join("file"), "text").unwrap();
    let words = ["--threads=2", "--log=none", "--max-connections=20000", "--idle-timeout=1h"];
    let server = Served::with(scratch.path(), &words);
    let ask_again = |mut stream: &TcpStream| {
        stream.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\ntext") {
            let mut some = [0; 512];
            let count = stream.read(&mut some).unwrap();
            assert!(count > 0);
            answer.extend_from_slice(&some[..count]);
        }
    };
    ask_again(&server.connect());
    let before = resident(&server);
    let idle: Vec<TcpStream> = (0..count)
        .map(|_| {
            let stream = server.connect();
            ask_again(&stream);
            stream
        })
        .collect();
    let each = resident(&server).saturating_sub(before) / count.max(1);
    println!("{count} idle clients: {each} bytes each");
    assert!(each < 4096, "{each} bytes each");
    assert!(text(ask(&server, "/file")).ends_with("text"));
    // All idle connections are still served.
    idle.iter().rev().for_each(ask_again);
}

/// Returns nginx from PATH, or from the directory into which tests/setup/nginx unpacks Debian's package.
fn nginx() -> Option<PathBuf> {
    let unpacked = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/nginx/usr/sbin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(unpacked)]);
    folders.map(|folder| folder.join("nginx")).find(|program| program.is_file())
}

#[test]
fn behind_nginx_as_the_manual_shows_it_files_resume_and_nothing_leaks() {
    let Some(nginx) = nginx() else { return skip("behind_nginx", "no nginx") };
    let scratch = Scratch::new();
    let root = scratch.folder("root");
    let bytes = bytes::of(1, 3_000_000);
    fs::write(root.join("file"), &bytes).unwrap();
    let (socket, front) = (scratch.join("back.sock"), scratch.join("front.sock"));
    let back = socket.to_str().unwrap();
    let mut serve = thalweg();
    serve.arg("serve").arg(&root).args(["--unix", back, "--log", "none"]);
    let _server = Running::start(&mut serve);
    until("the server does not listen", || UnixStream::connect(&socket).is_ok());
    // Takes the configuration from the guide.
    let manual = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guides/serve-behind-nginx.md"
    ));
    let manual = manual.unwrap();
    let block = manual.split("```").find(|block| block.contains("proxy_pass")).unwrap();
    let location = block.replace("/run/thalweg/site.sock", back);
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let at = scratch.path().display();
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|name| format!("{name}_temp_path {at}/{name};\n")).concat();
    let front_at = front.display();
    let text = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/log; {user}\nevents {{}}\nhttp {{\n\
         access_log off;\n{folders}server {{ listen unix:{front_at};\n{location}\n}} }}\n"
    );
    fs::write(scratch.join("conf"), text).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(scratch.path()).arg("-e").arg(scratch.join("log"));
    command.arg("-c").arg(scratch.join("conf")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let said = || fs::read_to_string(scratch.join("log")).unwrap_or_default();
    until("nginx does not listen", || UnixStream::connect(&front).is_ok());
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&front).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    let whole = ask("GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let part =
        ask("GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=2999000-\r\n\r\n");
    let outside = ask("GET /%2e%2e%2fconf HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    end(&mut child);
    assert!(whole.ends_with(&bytes) && whole.starts_with(b"HTTP/1.1 200"), "{}", said());
    assert!(part.ends_with(&bytes[2_999_000..]) && part.starts_with(b"HTTP/1.1 206"));
    assert!(!outside.windows(6).any(|six| six == b"daemon"));
    assert!(Path::new(back).exists());
}

/// Ends the server with SIGTERM, as a service manager does, so that its workers end, too.
fn end(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
fn the_worker_of_the_study_gets_the_bytes_from_every_server_or_says_why_not() {
    const TEST: &str = "the_worker_of_the_study_gets_the_bytes_from_every_server_or_says_why_not";
    if !skip::has_tools(TEST, &["cc"]) {
        return;
    }
    let (scratch, studies) =
        (Scratch::new(), concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies"));
    let worker = scratch.join("worker");
    let mut compile = Command::new("cc");
    compile.arg("-O1").arg("-o").arg(&worker).arg(format!("{studies}/programs/http.c"));
    assert!(compile.status().unwrap().success());
    for (server, words) in [("thalweg", "--zero-copy"), ("thalweg", ""), ("nginx", "sendfile on;")]
    {
        if server == "nginx" && nginx().is_none() {
            return skip(TEST, "no nginx");
        }
        let own = scratch.folder(&format!("{server}{}", words.len()));
        let mut command = Command::new(&worker);
        command.args([format!("server={server}"), format!("words={words}")]).current_dir(studies);
        command.arg(format!("program={}", env!("CARGO_BIN_EXE_thalweg")));
        command.args(["connections=3", "bytes=200000"]).arg(format!("scratch={}", own.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = b"hello\nwarm\ncheck\nrun 20\nmemory\nquit\n";
        // A worker that reports `unfit` ends before it has read all lines, so the error is ignored.
        let _ = child.stdin.take().unwrap().write_all(lines);
        let said = text(child.stdout.take().unwrap());
        child.wait().unwrap();
        if let Some(reason) = said.lines().find_map(|line| line.strip_prefix("unfit ")) {
            let is_expected = ["namespace", "a processor each", "congestion control"];
            assert!(is_expected.iter().any(|word| reason.contains(word)), "{server}: {reason}");
            return skip(TEST, reason);
        }
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..3], ["thalweg-worker 1", "ok", "ok"], "{said}");
        assert!(lines[3].contains("\"bytes\":4000000"), "{said}");
        assert!(lines[4].parse::<u64>().unwrap() > 0, "{said}");
    }
}

#[test]
fn a_server_whose_threads_cannot_start_fails_at_once() {
    let scratch = Scratch::new();
    let line = "mkdir s; ulimit -n 256; timeout 100 $T serve --threads 200 --check -l 0 s";
    shell(scratch.path(), line).expect(1).expect_said("cannot start a worker thread");
}
