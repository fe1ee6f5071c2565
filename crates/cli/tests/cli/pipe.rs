//! `thalweg pipe` in command lines of a shell.

use crate::support;

use rustix::fs::OFlags;
use std::{
    io::{BufRead, BufReader, Write},
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use support::{Ran, Scratch, bytes};

#[test]
fn everything_arrives_whatever_the_ends_are() {
    let scratch = Scratch::new();
    for size in [0, 1, 4095, 4096, 4097, 3_000_001] {
        let data = bytes(size);
        scratch.file("from", &data);
        for options in ["", "--zero-copy", "--tee copy", "--zero-copy --tee copy"] {
            for line in [
                "$T pipe OPTIONS < from > to",
                "cat from | $T pipe OPTIONS | cat > to",
                "$T pipe OPTIONS < from | cat > to",
                "cat from | $T pipe OPTIONS > to",
            ] {
                let line = line.replace("OPTIONS", options);
                let ran = scratch.shell(&format!("set -o pipefail; {line}")).ended(0);
                assert_eq!(ran.err, "", "{line}");
                assert!(scratch.read("to") == data, "{line}: {size}");
                assert!(!options.contains("tee") || scratch.read("copy") == data, "{line}: {size}");
            }
        }
    }
}

#[test]
fn offsets_of_shared_descriptors_end_where_they_should() {
    let scratch = Scratch::new();
    let data = bytes(700_000);
    scratch.file("from", &data);
    let line = "{ head -c 10; $T pipe; cat; } < from > to";
    scratch.shell(line).ended(0);
    assert!(scratch.read("to") == data);
    // Two commands append to one file, one after the other.
    scratch.shell("{ echo a; echo b | $T pipe; echo c; } > log; echo d | $T pipe >> log").ended(0);
    assert_eq!(scratch.read("log"), b"a\nb\nc\nd\n");
    scratch.shell("{ dd bs=1 count=3 status=none; $T pipe --tee t; } < from > to").ended(0);
    assert!(scratch.read("t") == data[3..]);
}

#[test]
fn what_a_reader_did_not_take_is_put_back() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(8 << 20));
    // The bytes that the reader did not take stay in the source for the next reader.
    let line =
        "{ $T pipe | { head -c 100000 > head; }; echo ${PIPESTATUS[0]} >&2; cat > rest; } < from";
    let ran = scratch.shell(line).ended(0);
    assert_eq!(ran.err.trim(), "141");
    let rest = scratch.read("rest");
    assert!(!rest.is_empty() && bytes(8 << 20).ends_with(&rest));
}

#[test]
fn a_reader_that_leaves_ends_it_without_a_word() {
    let scratch = Scratch::new();
    for options in ["", "--zero-copy", "--tee copy", "--no-method read-write"] {
        let line = format!("yes | $T pipe {options} | head -n 1; echo ${{PIPESTATUS[*]}}");
        let ran = scratch.shell(&line).ended(0);
        assert_eq!((ran.text().as_str(), ran.err.as_str()), ("y\n141 141 0\n", ""), "{options}");
        let line = format!("yes | $T pipe -v {options} | head -n 1");
        let ran = scratch.shell(&line).ended(0);
        assert!(ran.err.contains("CPU time") && !ran.err.contains("EPIPE"), "{}", ran.err);
    }
}

#[test]
fn a_full_destination_is_named_with_the_true_errno() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(100_000));
    for options in ["", "--zero-copy"] {
        for line in ["$T pipe OPTIONS < from > /dev/full", "cat from | $T pipe OPTIONS > /dev/full"]
        {
            let ran = scratch.shell(&line.replace("OPTIONS", options)).ended(1);
            assert!(
                ran.err.starts_with("thalweg: cannot write standard output: no space left"),
                "{}",
                ran.err
            );
            assert!(ran.err.contains("ENOSPC"), "{}", ran.err);
            assert!(ran.err.contains("\nhint: free some space there"), "{}", ran.err);
            assert_eq!(ran.err.lines().count(), 2 + usize::from(ran.err.contains("were lost")));
        }
    }
}

#[test]
fn a_tee_that_fails_is_named_and_the_others_go_on() {
    let scratch = Scratch::new();
    let data = bytes(500_000);
    for options in ["", "--zero-copy"] {
        let args = ["pipe", "--tee", "/dev/full", "--tee", "no/such", "--tee", "good", options];
        let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let ran = scratch.feed(&args, &data).ended(1);
        assert!(ran.out == data && scratch.read("good") == data);
        assert!(
            ran.err.contains(
                "thalweg: cannot open 'no/such': no such file or directory (open: ENOENT)"
            ),
            "{}",
            ran.err
        );
        assert!(
            ran.err.contains(
                "thalweg: cannot write '/dev/full': no space left on device (write: ENOSPC)"
            ),
            "{}",
            ran.err
        );
    }
    scratch.shell("echo more | $T pipe --append --tee good > /dev/null").ended(0);
    assert!(scratch.read("good") == [data.as_slice(), b"more\n"].concat());
    // A refusal costs no other file its content.
    scratch.file("in", "text");
    scratch.shell("$T pipe --tee good --tee in <in >/dev/null").ended(2);
    assert!(scratch.read("good") == [data.as_slice(), b"more\n"].concat());
}

#[test]
fn it_does_not_feed_on_itself() {
    let scratch = Scratch::new();
    scratch.file("f", "precious");
    for line in [
        "$T pipe < f >> f",
        "$T pipe --tee f < f",
        "$T pipe --tee f >> f",
        "$T pipe --tee f --append < f",
    ] {
        scratch.shell(line).ended(2);
        assert_eq!(scratch.read("f"), b"precious", "{line}");
    }
}

#[test]
fn json_is_one_object_last_on_standard_error() {
    let scratch = Scratch::new();
    let ran = scratch.feed(&["pipe", "--json", "--progress=json"], &bytes(300_000)).ended(0);
    let json = ran.err_json();
    assert_eq!((&json["bytes"], &json["schema"]), (&300_000.into(), &1.into()));
    assert_eq!(ran.err.lines().filter(|line| line.contains("\"schema\"")).count(), 1);
    assert!(ran.err.lines().any(|line| line.contains("\"progress\"")), "{}", ran.err);
    let failed = scratch.shell("echo x | $T pipe --json > /dev/full").ended(1);
    assert!(failed.err_json()["error"].as_str().unwrap().contains("ENOSPC"));
}

#[test]
fn ends_that_do_not_block_are_waited_for() {
    let scratch = Scratch::new();
    for options in
        [vec![], vec!["--zero-copy"], vec!["--tee", "copy"], vec!["--zero-copy", "--tee", "copy"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        let (out_reader, out_writer) = std::io::pipe().unwrap();
        for end in [reader.as_fd(), out_writer.as_fd()] {
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK).unwrap();
        }
        let args = [vec!["pipe"], options].concat();
        let mut child = scratch
            .thalweg(&args)
            .stdin(Stdio::from(reader))
            .stdout(Stdio::from(out_writer))
            .spawn()
            .unwrap();
        let data = bytes(400_000);
        let (mut writer, sent) = (writer, data.clone());
        let feeder = std::thread::spawn(move || {
            for part in sent.chunks(150_000) {
                std::thread::sleep(Duration::from_millis(30));
                writer.write_all(part).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        let mut seen = Vec::new();
        std::io::Read::read_to_end(&mut &out_reader, &mut seen).unwrap();
        feeder.join().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
        assert!(seen == data, "{args:?}");
    }
}

#[test]
fn it_enlarges_the_pipes_it_is_given() {
    let scratch = Scratch::new();
    let most = thalweg_sys::host::pipe_max_size();
    let (reader, writer) = std::io::pipe().unwrap();
    let before = rustix::pipe::fcntl_getpipe_size(&reader).unwrap();
    let ours = reader.try_clone().unwrap();
    drop(writer);
    let status =
        scratch.thalweg(["pipe"]).stdin(Stdio::from(reader)).stdout(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(0));
    let after = rustix::pipe::fcntl_getpipe_size(&ours).unwrap();
    if most.is_some_and(|most| most > before as u64) && after == before {
        support::skip("it_enlarges_the_pipes_it_is_given", "the kernel grants no larger pipe");
    }
    assert!(after >= before);
}

#[test]
fn a_pipe_that_can_hold_all_that_is_left_keeps_its_capacity() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("short"), "all").unwrap();
    let source = std::fs::File::open(scratch.path("short")).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let before = rustix::pipe::fcntl_getpipe_size(&reader).unwrap();
    let status = scratch.thalweg(["pipe"]).stdin(source).stdout(writer).status();
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(rustix::pipe::fcntl_getpipe_size(&reader).unwrap(), before);
    let mut seen = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut seen).unwrap();
    assert_eq!(seen, b"all");
}

#[test]
fn an_interrupt_ends_it_the_way_shells_expect() {
    let scratch = Scratch::new();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = Command::new("bash")
            .args(["-c", "exec \"$T\" pipe --progress=json"])
            .env("T", env!("CARGO_BIN_EXE_thalweg"))
            .env("THALWEG_PROFILE", scratch.path("none"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // thalweg shows progress although the source is slow, and notices an interrupt while it waits for data.
        let mut stdin = child.stdin.take().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    stdin.write_all(b"drip").unwrap();
                    std::thread::sleep(Duration::from_millis(300));
                }
            });
            let shown = said.by_ref().filter(|line| line.contains("\"bytes\":")).take(2).count();
            over.store(true, Relaxed);
            assert_eq!(shown, 2, "it ended before there was progress");
        });
        let pid = child.id().to_string();
        let killed = Command::new("kill").args([format!("-{signal}"), pid]).status().unwrap();
        assert!(killed.success());
        let rest: String = said.collect();
        let ran = Ran::of_child(child);
        assert_eq!(ran.code, code, "{rest}");
        assert!(!rest.contains("panicked"), "{rest}");
        drop(stdin);
    }
}

#[test]
fn a_limit_holds_and_quiet_is_quiet() {
    let scratch = Scratch::new();
    let began = std::time::Instant::now();
    let ran = scratch.feed(&["pipe", "--limit", "200K", "-q"], &bytes(100 << 10)).ended(0);
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert!(ran.out.len() == 100 << 10 && ran.err.is_empty());
    let shown = scratch.feed(&["pipe", "-v"], &bytes(5000)).ended(0);
    assert!(shown.err.contains("5000 bytes"), "{}", shown.err);
}

#[test]
fn a_folder_is_no_stream() {
    let scratch = Scratch::new();
    let ran = scratch.shell("$T pipe < .").ended(1);
    assert!(ran.err.contains("EISDIR"), "{}", ran.err);
}

#[test]
fn an_endless_source_is_left_at_the_size_that_was_asked_for() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["pipe", "-q", "--size", "100K", "--stop-at-size"]);
    command.stdin(std::fs::File::open("/dev/zero").expect("every system has it"));
    let output = command.output().expect("the command starts");
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), 100 << 10);
}
