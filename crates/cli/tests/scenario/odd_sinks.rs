//! Sinks that thalweg cannot create or replace: pipes, devices, open files by their descriptors, protected files. All
//! bytes of the source must arrive, including the zeros of its holes.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::fetches::liar::{LyingServer, await_hang_up};
use crate::support::{
    Scratch, bytes,
    loop_disk::{LoopDevice, one_search},
    mounts, names, run, shell, skip,
    skip::has_tools,
    skip::is_root,
    thalweg,
};

const LEN: u64 = 3 << 20;

/// Makes a file of data, a hole and data. It is larger than one buffer, so that the copy makes a plan.
fn sparse(path: &Path) -> Vec<u8> {
    File::create(path).unwrap().set_len(LEN).unwrap();
    bytes::write_at(path, 1, 0, 5000);
    bytes::write_at(path, 2, LEN - 10, 10);
    fs::read(path).unwrap()
}

#[test]
fn a_source_with_holes_arrives_whole_in_what_cannot_have_holes() {
    let scratch = Scratch::new();
    let truth = sparse(&scratch.join("s"));
    File::create(scratch.join("one-hole")).unwrap().set_len(1 << 20).unwrap();
    for sparse in ["auto", "always", "never"] {
        let lines = [
            "$T copy -q OPTION s /dev/stdout | cat >out",
            "$T copy -q OPTION s /dev/fd/1 | cat >out",
            "$T copy -q OPTION s - | cat >out",
            "mkfifo f; cat f >out & $T copy -q OPTION s f; wait; rm f",
        ];
        for line in lines {
            let line =
                format!("set -o pipefail; {line}").replace("OPTION", &format!("--sparse={sparse}"));
            shell(scratch.path(), &line).expect(0);
            assert!(fs::read(scratch.join("out")).unwrap() == truth, "{line}");
        }
        let line = format!("$T copy -q --sparse={sparse} one-hole /dev/stdout | wc -c");
        assert_eq!(shell(scratch.path(), &line).expect(0).stdout, b"1048576\n", "{line}");
    }
}

#[test]
fn a_file_of_proc_larger_than_the_buffer_goes_into_a_pipe() {
    let scratch = Scratch::new();
    // The file reports size 0, and has more bytes than one buffer.
    let line = "cat /proc/kallsyms | wc -c; $T copy -q /proc/kallsyms /dev/stdout | wc -c";
    let ran = shell(scratch.path(), &format!("set -o pipefail; {line}")).expect(0);
    let text = String::from_utf8(ran.stdout).unwrap();
    let counts: Vec<&str> = text.lines().collect();
    assert!(counts.len() == 2 && counts[0] == counts[1], "{counts:?}");
}

/// A block device of a few MiB that holds old bytes everywhere.
struct Loop {
    device: PathBuf,
}

impl Loop {
    fn attach(test: &str, scratch: &Scratch) -> Option<Self> {
        if !is_root(test) || !has_tools(test, &["losetup"]) {
            return None;
        }
        let _one = one_search();
        let image = scratch.join("image");
        fs::write(&image, vec![0xaa; LEN as usize + (1 << 20)]).unwrap();
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(&image).output().unwrap();
        if !output.status.success() {
            skip(
                test,
                &format!("no loop device: {}", String::from_utf8_lossy(&output.stderr).trim()),
            );
            return None;
        }
        Some(Self { device: PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()) })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} is left", self.device.display());
    }
}

#[test]
fn a_device_gets_zeros_where_the_source_has_holes_and_is_read_back() {
    let test = "a_device_gets_zeros_where_the_source_has_holes_and_is_read_back";
    let scratch = Scratch::new();
    let Some(disk) = Loop::attach(test, &scratch) else { return };
    let truth = sparse(&scratch.join("s"));
    for sparse in ["auto", "always", "never"] {
        fs::write(&disk.device, vec![0xaa; LEN as usize + (1 << 20)]).unwrap();
        let mut copy = thalweg();
        copy.args(["copy", "--verify", "--sparse", sparse])
            .arg(scratch.join("s"))
            .arg(&disk.device);
        let said = run(&mut copy).expect(0);
        let there = fs::read(&disk.device).unwrap();
        assert!(there[..LEN as usize] == truth, "--sparse={sparse}: old bytes shine through");
        assert!(there[LEN as usize..].iter().all(|byte| *byte == 0xaa), "more was written");
        said.expect_said("1 verified");
    }
}

#[test]
fn an_image_larger_than_its_device_is_written_in_part_and_the_part_is_said() {
    let test = "an_image_larger_than_its_device_is_written_in_part_and_the_part_is_said";
    if !is_root(test) || !has_tools(test, &["losetup"]) {
        return;
    }
    let scratch = Scratch::new();
    bytes::write(&scratch.join("image"), 1, LEN);
    // Tries a copy with a single write, and a copy with many writes.
    for (size, len) in [(64 << 10, 200_000), (1 << 20, LEN)] {
        let (store, image) = (scratch.join("store"), scratch.join("image"));
        File::create(&store).unwrap().set_len(size).unwrap();
        File::options().write(true).open(&image).unwrap().set_len(len).unwrap();
        let device = LoopDevice::attach(&store);
        for flags in [&["--resume"][..], &["--json"], &["--verify", "--json"], &["--inplace"]] {
            let mut copy = thalweg();
            copy.arg("copy").args(flags).arg(&image).arg(device.path());
            let ran = run(&mut copy).expect_no_panic();
            assert_eq!(ran.code(), 1, "{}", ran.said());
            let part = format!("partly written: '{}', ", device.path().display());
            assert!(ran.stderr.contains(&part), "{}", ran.said());
            assert!(ran.stderr.contains(&format!("{size} bytes")), "{}", ran.said());
            assert!(!ran.stderr.contains("nothing was copied"), "{}", ran.said());
            if flags.contains(&"--json") {
                let (answer, device) = (ran.json(), device.path().to_str());
                assert_eq!((&answer["bytes"], answer["torn"][0].as_str()), (&size.into(), device));
            }
        }
        // After a failed first write, the message does not mention partly written data.
        let mut copy = thalweg();
        copy.args(["copy", "--method", "splice"]).arg(&image).arg("/dev/full");
        assert!(!run(&mut copy).stderr.contains("partly written"));
        bytes::write(&image, 1, LEN);
    }
}

#[test]
fn what_goes_into_a_pipe_is_not_called_verified_and_waits_for_its_reader() {
    let scratch = Scratch::new();
    let truth = sparse(&scratch.join("s"));
    let said = "1 not verified (pipe, device or dry run)";
    let into = "mkfifo f; $T copy --verify s f 2>said & cat f >out; wait; cat said >&2";
    let from = "mkfifo g; cat s >g & $T copy --verify g out; wait";
    for line in [into, from, "cat s | $T copy --verify - out", "$T copy --verify s /dev/null"] {
        let ran = shell(scratch.path(), line).expect(0);
        let text = &ran.stderr;
        assert!(text.contains(said) && !text.contains("1 verified"), "{line}: {text}");
        assert!(fs::read(scratch.join("out")).unwrap() == truth, "{line}");
    }
}

#[test]
fn what_comes_from_a_pipe_gets_holes_when_asked() {
    let scratch = Scratch::new();
    let truth = sparse(&scratch.join("s"));
    let fifo = "mkfifo f; cat s >f & $T copy -q --sparse=always f out; wait";
    for line in ["cat s | $T copy -q --sparse=always - out", fifo] {
        shell(scratch.path(), line).expect(0);
        assert!(fs::read(scratch.join("out")).unwrap() == truth, "{line}");
        assert!(fs::metadata(scratch.join("out")).unwrap().blocks() * 512 < LEN, "{line}");
    }
}

#[test]
fn in_place_the_old_bytes_do_not_stay_in_the_holes() {
    let scratch = Scratch::new();
    let truth = sparse(&scratch.join("s"));
    for sparse in ["auto", "always", "never"] {
        fs::write(scratch.join("old"), vec![0xaa; LEN as usize + 4096]).unwrap();
        let inode = fs::metadata(scratch.join("old")).unwrap().ino();
        let mut copy = thalweg();
        copy.args(["copy", "--inplace", "--verify", "--sparse", sparse]);
        run(copy.args([scratch.join("s"), scratch.join("old")])).expect(0);
        assert!(fs::read(scratch.join("old")).unwrap() == truth, "--sparse={sparse}");
        assert_eq!(fs::metadata(scratch.join("old")).unwrap().ino(), inode);
    }
}

#[test]
fn an_open_file_named_by_its_descriptor_is_written_into_as_cp_does() {
    let scratch = Scratch::new();
    let truth = sparse(&scratch.join("s"));
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        // The shell continues to write to the same open file. If thalweg had replaced that file, the last line would be
        // lost.
        let line = format!("{{ $T copy -q s {name}; echo last; }} >>out");
        shell(scratch.path(), &line).expect(0);
        let expected = [&truth[..], b"last\n"].concat();
        assert!(fs::read(scratch.join("out")).unwrap() == expected, "{name}");
    }
    let line = "exec 5>gone; rm gone; $T copy -q s /dev/fd/5 && cmp s /proc/self/fd/5";
    shell(scratch.path(), line).expect(0);
    assert_eq!(names(scratch.path()), ["out", "s"], "no file under the name of a deleted one");
}

#[test]
fn a_file_in_a_folder_that_takes_no_new_file_is_written_into_and_v_says_so() {
    let test = "a_file_in_a_folder_that_takes_no_new_file_is_written_into_and_v_says_so";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    let truth = sparse(&scratch.join("s"));
    let run_as = "setpriv --reuid=1234 --regid=1234 --clear-groups ./thalweg copy -v";
    fs::write(scratch.join("small"), "new").unwrap();
    // The user may not write the first directory. In the second, a sticky directory, the file belongs to another user.
    for (mode, owner) in [("755", "1234"), ("1777", "0")] {
        for (source, truth) in [("s", &truth[..]), ("small", &b"new"[..])] {
            let line = format!(
                "rm -rf d; mkdir d; echo old >d/f; chown {owner} d/f; chmod 666 d/f; chmod {mode} d; \
                 ino=$(stat -c %i d/f); {run_as} {source} d/f && test $ino = $(stat -c %i d/f) && ls -A d"
            );
            let ran = shell(scratch.path(), &line).expect(0);
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(text.contains("in place, because ") && text.ends_with("\nf\n"), "{text}");
            assert!(fs::read(scratch.join("d/f")).unwrap() == truth, "{mode} {source}");
        }
    }
}

#[test]
fn what_was_to_be_removed_and_may_not_be_is_an_error_and_keeps_its_bytes() {
    let test = "what_was_to_be_removed_and_may_not_be_is_an_error_and_keeps_its_bytes";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    let line = "mkdir d; echo old >d/f; ln d/f twin; chmod 666 d/f; chmod 755 d; echo new >s; \
        setpriv --reuid=1234 --regid=1234 --clear-groups ./thalweg copy --remove-destination s d/f; \
        test $? = 1 && cat d/f twin && ls -A d";
    let ran = shell(scratch.path(), line).expect(0);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "old\nold\nf\n");
}

#[test]
fn a_file_that_something_is_mounted_on_is_written_into() {
    let test = "a_file_that_something_is_mounted_on_is_written_into";
    let Some(root) = mounts().get(test, "ext4") else { return };
    let scratch = Scratch::within(root);
    let truth = sparse(&scratch.join("s"));
    // The destination is a bind mount of a file, as containers use for /etc/hosts. Its new mount namespace ends with
    // the command.
    for option in ["--verify", "--resume"] {
        let line =
            "echo old >real; echo x >f; mount --bind real f && $T copy -q OPTION s f && cmp s f";
        let line = line.replace("OPTION", option);
        let line = format!(
            "unshare --mount --propagation=slave bash -c '{line}'; code=$?; cat real; exit $code"
        );
        let ran = shell(scratch.path(), &line).expect(0);
        assert!(ran.stdout == truth, "{option}");
        assert_eq!(names(scratch.path()), ["f", "real", "s"], "{option}");
    }
}

/// Another process that shares the pipe may have made it non-blocking.
#[test]
fn a_slow_reader_of_a_non_blocking_pipe_does_not_count_as_a_silent_server() {
    // At the end of the small file, all bytes have left the socket while the pipe is full (64 KiB).
    for (len, method) in [(16 << 20, "splice"), (16 << 20, "read-write"), (70_000, "read-write")] {
        let truth = Arc::new(bytes::of(1, len));
        let body = Arc::clone(&truth);
        let server = LyingServer::new(move |_, stream| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
            drop(stream.write_all(head.as_bytes()));
            // The client receives the head alone, so that a mechanism moves the whole body.
            thread::sleep(Duration::from_millis(50));
            drop(stream.write_all(&body));
            await_hang_up(stream);
        });
        let (mut reader, writer) = std::io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut fetch = thalweg();
        fetch.args(["fetch", "-q", "--stall=300ms", "--retries=0", "--method", method]);
        fetch.args([&server.url("x"), "-"]).stdout(writer).stderr(Stdio::piped());
        let running = fetch.spawn().unwrap();
        // The command holds the other end of the pipe.
        drop(fetch);
        thread::sleep(Duration::from_secs(1));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        let ended = running.wait_with_output().unwrap();
        assert!(ended.status.success(), "{len} by {method}: {ended:?}");
        assert!(received == *truth, "{len} by {method}");
    }
}
