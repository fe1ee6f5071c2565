//! `thalweg copy` from and to other machines: over a plain command, and over ssh.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    fetch_trees::{are_equal, shared},
    fetches::is_written,
    support::{Ran, Running, Scratch, bytes, names, run, shell, sshd::OtherMachine, thalweg},
};
use thalweg_testing::{Sample, script};

/// Runs a test over a plain command, over ssh, or over both, at random: an sshd takes most of the time of these tests.
/// A plain command replaces ssh if no sshd can run.
pub fn over_each(test: &str, check: impl Fn(&Scratch, &OtherMachine)) {
    for is_over_ssh in Sample::new(test, 3).of([false, true]) {
        let scratch = Scratch::new();
        let by_sshd = is_over_ssh.then(|| OtherMachine::by_sshd(test, scratch.path())).flatten();
        check(&scratch, &by_sshd.unwrap_or_else(|| OtherMachine::by_script(scratch.path())));
    }
}

/// Names that a shell, an option parser or a percent-decoder could misread.
pub fn odd_names() -> Vec<OsString> {
    let names: [&[u8]; 14] = [
        b"a b",
        b"'",
        b"\"",
        b"line\nbreak",
        b"$(touch owned)",
        b"`touch owned`",
        b"-rf",
        b"\xff\xfe",
        b"%41",
        b"a:b",
        b"*?[x]",
        b"~",
        b"\\",
        b"; touch owned #",
    ];
    names.map(|name| OsStr::from_bytes(name).to_owned()).to_vec()
}

#[test]
fn a_tree_is_copied_from_and_to_another_machine_and_the_second_run_moves_nothing() {
    over_each("a_tree_is_copied_from_and_to_another_machine", |scratch, machine| {
        let root = shared(scratch);
        symlink("/etc/passwd", root.join("out")).unwrap();
        for name in odd_names() {
            bytes::write(&root.join(name), 5, 70_000);
        }
        let (here, there) = (scratch.join("here"), scratch.join("there"));
        for unchanged in [0, 215] {
            let mut pull = machine.copy(&["-a", "--json"]);
            let ran = run(pull.arg(machine.at(root.join(""))).arg(&here)).expect(0);
            assert_eq!(ran.json()["tree"]["unchanged"], unchanged, "{}", ran.said());
            are_equal(&root, &here);
            let mut push = machine.copy(&["-a", "--json"]);
            let ran = run(push.arg(root.join("")).arg(machine.at(&there))).expect(0);
            assert_eq!(ran.json()["tree"]["unchanged"], unchanged, "{}", ran.said());
            are_equal(&root, &there);
        }
        fs::write(root.join("0/f0"), "longer").unwrap();
        let words = ["-a", "-v", "--connections=3"];
        let ran = run(machine.copy(&words).arg(machine.at(root.join(""))).arg(&here)).expect(0);
        ran.expect_said("214 unchanged");
        let ran = run(machine.copy(&["-a", "-v"]).arg(root.join("")).arg(machine.at(&there)));
        ran.expect(0).expect_said("214 unchanged");
        are_equal(&root, &here);
        are_equal(&root, &there);
    });
}

#[test]
fn no_shell_on_the_way_interprets_a_name() {
    over_each("no_shell_on_the_way_interprets_a_name", |scratch, machine| {
        let (root, here, there) = ("root", scratch.folder("here"), scratch.folder("there"));
        let root = scratch.folder(root);
        let tried = Sample::new("no_shell_on_the_way_interprets_a_name", 6).of(odd_names());
        for (number, name) in tried.iter().enumerate() {
            bytes::write(&root.join(name), number as u64, 100_000);
            run(machine.copy(&["-a"]).arg(machine.at(root.join(name))).arg(&here)).expect(0);
            run(machine.copy(&["-a"]).arg(root.join(name)).arg(machine.at(&there))).expect(0);
            let renamed = there.join([OsStr::new("x"), name].join(OsStr::new("")));
            run(machine.copy(&[]).arg(root.join(name)).arg(machine.at(&renamed))).expect(0);
        }
        are_equal(&root, &here);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 2 * tried.len());
        assert!(
            run(Command::new("find").arg(scratch.path()).args(["-name", "owned"]))
                .stdout
                .is_empty()
        );
    });
}

#[test]
fn names_are_placed_as_by_cp_and_a_slash_means_the_contents() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let root = scratch.folder("src");
    bytes::write(&root.join("f"), 1, 10);
    fs::create_dir(scratch.join("inside")).unwrap();
    let to = |words: &[&str], dst: &str| -> Ran {
        let (source, words) = words.split_last().unwrap();
        run(machine.copy(words).arg(source).arg(machine.at(dst)).current_dir(scratch.path()))
    };
    to(&["-r", "src"], "new").expect(0);
    to(&["-r", "src"], "inside").expect(0);
    to(&["-r", "src/"], "inside").expect(0);
    to(&["-rT", "src"], "flat").expect(0);
    to(&["-r", "src"], "~/home").expect(0);
    for made in ["new/f", "inside/src/f", "inside/f", "flat/f", "home/f"] {
        assert!(scratch.join(made).is_file(), "{made}");
    }
    // A single file keeps its mode and time.
    let (one, other) = (scratch.join("src/f"), scratch.join("inside/f2"));
    fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    run(machine.copy(&[]).arg(machine.at("src/f")).arg(&other)).expect(0);
    let (one, other) = (one.metadata().unwrap(), other.metadata().unwrap());
    assert_eq!((one.mode(), one.mtime_nsec()), (other.mode(), other.mtime_nsec()));
    to(&["src"], "x").expect(1).expect_said("is a directory");
    run(machine.copy(&[]).arg(machine.at("src")).arg(scratch.join("x")))
        .expect(1)
        .expect_said("use -r or -a");
    to(&["-r", "none"], "x").expect(1).expect_said("'none'");
    run(machine.copy(&["-r"]).arg(machine.at("none")).arg(scratch.join("x")))
        .expect(1)
        .expect_said("no such file or directory");
    let several = run(machine
        .copy(&["-r"])
        .args([machine.at("src"), machine.at("new")])
        .arg(scratch.folder("both")));
    several.expect(0);
    assert_eq!(names(&scratch.join("both")), ["new", "src"]);
    assert!(!scratch.join("x").exists());
    // The directory of `-t` must exist.
    for not_directory in ["src/f", "missing"] {
        let before = names(scratch.path());
        let into = |path: &OsStr, source: &OsStr| {
            let option = [OsStr::new("--target-directory="), path].join(OsStr::new(""));
            run(machine.copy(&[]).arg(option).arg(source)).expect(2).expect_said("not a directory");
        };
        let (here, there) = (scratch.join(not_directory), machine.at(not_directory));
        into(here.as_ref(), machine.at("src/f").as_ref());
        into(there.as_ref(), scratch.join("src/f").as_ref());
        assert_eq!(names(scratch.path()), before);
        bytes::expect(&scratch.join("src/f"), 1, 10);
    }
}

#[test]
fn what_cannot_be_done_between_machines_is_refused() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    scratch.folder("src");
    let refused = |words: &[&str], said: &str| {
        run(machine.copy(words).current_dir(scratch.path())).expect(2).expect_said(said);
    };
    refused(&["-a", "h:src", "src", "dst"], "some sources are remote");
    refused(&["-a", "h:src", "g:dst"], "cannot both be remote");
    refused(&["-a", "--backup", "h:src", "dst"], "--backup");
    refused(&["-a", "--verify=device", "h:src", "dst"], "--verify=device");
    refused(&["-a", "--dry-run", "src", "h:dst"], "--dry-run");
    refused(&["-a", "h::src", "dst"], "rsync daemons");
    refused(&["-a", "rsync://h/src", "dst"], "not a path");
    refused(&["-a", "x@-oProxyCommand=touch:src", "dst"], "invalid host name");
    refused(&["-a", "$(touch owned):src", "dst"], "invalid host name");
    refused(&["-a", "-e", "'", "h:src", "dst"], "-e");
    refused(&["-a", "--shard=0/1", "src", "h:dst"], "--shard cannot be used with a remote");
    assert_eq!(names(scratch.path()), ["rsh", "src"]);
    // A name with a slash before the colon is a local name.
    fs::write(scratch.join("a:b"), "x").unwrap();
    run(machine.copy(&["./a:b", "copied"]).current_dir(scratch.path())).expect(0);
    assert_eq!(fs::read(scratch.join("copied")).unwrap(), b"x");
}

#[test]
fn a_connection_that_fails_names_the_command_and_its_last_message() {
    let scratch = Scratch::new();
    let root = scratch.folder("src");
    let to = scratch.join("dst");
    let rsh = scratch.join("fails");
    let run_over = |text: &str| {
        script(&rsh, &format!("#!/bin/sh\n{text}\n"));
        let pull = run(thalweg().args(["copy", "-a", "-e"]).arg(&rsh).arg("h:x").arg(&to));
        let push = run(thalweg().args(["copy", "-a", "-e"]).arg(&rsh).arg(&root).arg("h:x"));
        [pull, push]
    };
    for ran in run_over("echo 'sh: thalweg: not found' >&2; exit 127") {
        let ran = ran.expect(1);
        ran.expect_said("h: exited with status 127");
        ran.expect_said("sh: thalweg: not found");
        ran.expect_said("hint: install thalweg on h");
    }
    for ran in run_over("echo 'Connection refused' >&2; exit 255") {
        ran.expect(1).expect_said("hint: check the connection with `ssh h`");
    }
    for ran in run_over("kill -9 $$") {
        ran.expect(1).expect_said("was killed by signal 9");
    }
    // Output of the other machine must not control the terminal.
    for ran in run_over("printf '\\033[31mred\\n' >&2; exit 1") {
        let ran = ran.expect(1);
        assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
    }
    let [pull, push] = run_over("echo 'Welcome to h!'; exec cat >/dev/null");
    pull.expect(1).expect_said("printed 'Welcome to h!' before its first response");
    push.expect(1);
    let binary = env!("CARGO_BIN_EXE_thalweg");
    script(&rsh, "#!/bin/sh\n[ $1 = at=h ] || exit 9\necho Welcome\nshift\nexec \"$@\"\n");
    let mut noisy = thalweg();
    noisy.args(["copy", "-a", "--remote-program", binary, "-e"]);
    noisy.arg(format!("{} at={{}}", rsh.display())).arg(&root).arg("h:x");
    run(&mut noisy).expect(1).expect_said("h: printed 'Welcome' before its first request");
    // The copy fails if the command never starts thalweg, or hides the failure of thalweg.
    for text in ["exit 0", "echo Welcome", "shift; \"$@\" <&- >&-; exit 0"] {
        for ran in run_over(text) {
            let ran = ran.expect(1);
            assert!(ran.stderr.contains("thalweg: h: "), "{text}: {}", ran.said());
        }
        let ran = run(thalweg().args(["sync", "-e"]).arg(&rsh).arg(&root).arg("h:x"));
        assert!(ran.code() == 1 && ran.stderr.contains("thalweg: h: "), "{text}: {}", ran.said());
    }
    assert!(!scratch.join("x").exists());
    let [pull, _] = run_over(
        "printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'; exec cat >/dev/null",
    );
    pull.expect(4).expect_said("did not announce its version");
    let [pull, _] = run_over(
        "printf 'HTTP/1.1 200 OK\\r\\nThalweg: 9.9.9; format=99\\r\\nContent-Length: 0\\r\\n\\r\\n'; exec cat >/dev/null",
    );
    pull.expect(4).expect_said("h runs thalweg 9.9.9 (format 99)");
    fs::remove_file(&rsh).unwrap();
    let ran = run(thalweg().args(["copy", "-a", "-e"]).arg(&rsh).arg("h:x").arg(&to)).expect(1);
    ran.expect_said("cannot start");
    assert_eq!(names(scratch.path()), ["src"]);
}

#[test]
fn after_a_kill_of_the_connection_the_same_command_brings_the_rest() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let root = shared(&scratch);
    let place = scratch.folder("place");
    let all = 20_000_000 + 100 * (0..200).sum::<u64>();
    for (is_push, compress) in [(false, false), (true, false), (false, true), (true, true)] {
        let dst = place.join("dst");
        let copy = |words: &[&str]| {
            let mut command = machine.copy(words);
            command.args(compress.then_some("--compress"));
            if is_push {
                command.arg(root.join("")).arg(machine.at(&dst));
            } else {
                command.arg(machine.at(root.join(""))).arg(&dst);
            }
            command
        };
        let mut running = Running::start(&mut copy(&["-a", "--limit=6M"]));
        while !is_written(&place.join(".dst.thalweg-part/.large.thalweg-journal")) {
            assert!(!running.has_ended(), "over before it was killed");
            thread::sleep(Duration::from_millis(1));
        }
        let pid = fs::read_to_string(scratch.join("pid")).unwrap();
        run(Command::new("kill").args(["-9", pid.trim()]));
        let ran = running.finish();
        if is_push {
            ran.expect(1).expect_said("was killed by signal 9");
            let second = run(&mut copy(&["-a", "--json"])).expect(0).json();
            assert!(second["bytes"].as_u64().unwrap() < all, "{second}");
        } else {
            // The client reconnects by itself.
            ran.expect(0).expect_said("retrying");
        }
        are_equal(&root, &dst);
        assert_eq!(names(&place), ["dst"]);
        fs::remove_dir_all(&dst).unwrap();
    }
}

#[test]
fn a_server_on_standard_input_and_output_works_on_pipes_sockets_and_files() {
    let scratch = Scratch::new();
    let root = scratch.folder("root");
    bytes::write(&root.join("f"), 1, 3_000_000);
    fs::write(scratch.join("ask"), "GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let body = |answer: &[u8]| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(answer[end..], fs::read(root.join("f")).unwrap());
    };
    for line in [
        "cat ask | $T serve --stdio root | cat",
        "$T serve --stdio --read-only root <ask | cat",
        "$T serve --stdio root <ask >out; cat out",
    ] {
        let ran = shell(scratch.path(), line).expect(0);
        body(&ran.stdout);
    }
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let input = std::os::fd::OwnedFd::from(far.try_clone().unwrap());
    let mut serve = thalweg();
    serve
        .args(["serve", "--stdio"])
        .arg(&root)
        .stdin(input)
        .stdout(std::os::fd::OwnedFd::from(far));
    let mut child = serve.stderr(Stdio::null()).spawn().unwrap();
    drop(serve);
    let mut near = near;
    std::io::Write::write_all(&mut near, &fs::read(scratch.join("ask")).unwrap()).unwrap();
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut near, &mut answer).unwrap();
    body(&answer);
    assert!(child.wait().unwrap().success());
    shell(scratch.path(), "$T serve --stdio root </dev/null >out; test ! -s out").expect(0);
    shell(scratch.path(), "$T serve --stdio root <&- >out").expect(1);
    shell(scratch.path(), "$T serve --stdio --listen :0 root").expect(2);
    // The server serves nothing outside of the directory, whatever the request is.
    fs::write(scratch.join("secret"), "mine").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    for path in ["/../secret", "/%2e%2e/secret", "/link", "//etc/passwd"] {
        let line = format!(
            "printf 'GET {} HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n' | $T serve --stdio root",
            path.replace('%', "%%")
        );
        let ran = shell(scratch.path(), &line).expect(0);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(said.starts_with("HTTP/1.1 4"), "{path}: {said}");
    }
}

#[test]
fn a_machine_without_thalweg_receives_it_once_unless_that_is_forbidden() {
    over_each("a_machine_without_thalweg_receives_it_once", |scratch, machine| {
        let root = scratch.folder("src");
        bytes::write(&root.join("f"), 1, 10);
        // Removes the directory of the tested binary from the PATH of the other side.
        let plain = scratch.join("plain");
        let text = fs::read_to_string(&machine.rsh).unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
        script(&plain, &text.replace(&bin.display().to_string(), "/nowhere"));
        let copy = |words: &[&str]| {
            let mut command = thalweg();
            command.arg("copy").arg("-e").arg(&plain).args(words);
            command
        };
        let there = scratch.join("there");
        let ran = run(copy(&["-a", "--no-install"]).arg(&root).arg(machine.at(&there)));
        ran.expect(1).expect_said("hint: install thalweg on");
        let cache = scratch.join(".cache/thalweg");
        assert!(!cache.exists() && !there.exists());
        let ran = run(copy(&["-a"]).arg(&root).arg(machine.at(&there))).expect(0);
        ran.expect_said("copying thalweg to ~/.cache/thalweg");
        are_equal(&root, &there);
        let [version] = &names(&cache)[..] else { panic!("{:?}", names(&cache)) };
        assert_eq!(names(&cache.join(version)), ["thalweg"]);
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&cache), mode(&cache.join(version).join("thalweg"))), (0o700, 0o700));
        // The next copy finds the installed program.
        let ran = run(copy(&["-a"]).arg(machine.at(&root)).arg(scratch.join("here"))).expect(0);
        assert!(!ran.stderr.contains("copying thalweg"), "{}", ran.stderr);
        are_equal(&root, &scratch.join("here"));
        // If the program does not run on the other machine, it is not installed there.
        fs::remove_dir_all(&cache).unwrap();
        let text = fs::read_to_string(&plain).unwrap();
        script(&plain, &text.replace("#!/bin/sh\n", "#!/bin/sh\nulimit -f 100\n"));
        let ran = run(copy(&["-a"]).arg(machine.at(&root)).arg(scratch.join("other")));
        if machine.host == "elsewhere" {
            ran.expect(1).expect_said("cannot install thalweg");
            assert!(names(&cache).iter().all(|name| names(&cache.join(name)).is_empty()));
        }
    });
}

#[test]
fn the_host_is_placed_where_the_command_says() {
    let scratch = Scratch::new();
    let root = scratch.folder("src");
    bytes::write(&root.join("f"), 1, 10);
    let exec = scratch.join("exec");
    // Simulates `docker exec -i CONTAINER COMMAND...`, which runs no shell.
    script(&exec, "#!/bin/sh\n[ \"$1 $2 $3\" = '-i box --' ] || exit 9\nshift 3\nexec \"$@\"\n");
    let copy = |rsh: String, from: &Path, to: &str| {
        let mut command = thalweg();
        command.args(["copy", "-a", "-e", &rsh, "--remote-program"]);
        command.arg(env!("CARGO_BIN_EXE_thalweg")).arg(from).arg(to);
        run(command.current_dir(scratch.path()))
    };
    let exec = exec.display();
    let to = format!("box:{}", scratch.join("a $HOME").display());
    copy(format!("'{exec}' -i {{}} --"), &root, &to).expect(0);
    are_equal(&root, &scratch.join("a $HOME"));
    copy(format!("'{exec}' -i"), &root, "box:x").expect(1).expect_said("exited with status 9");
}

#[test]
fn every_line_of_the_guide_to_other_machines_runs() {
    let test = "every_line_of_the_guide_to_other_machines_runs";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/other-machines.md");
    let text = fs::read_to_string(page).unwrap();
    let blocks: Vec<_> = text.split("```bash\n").skip(1).collect();
    assert!(blocks.len() > 3);
    for block in blocks {
        let (block, _) = block.split_once("\n```").unwrap();
        let scratch = Scratch::new();
        let there = scratch.folder("there");
        let Some(machine) = OtherMachine::by_sshd(test, &there) else { return };
        let bin = scratch.folder("bin");
        symlink(&machine.rsh, bin.join("ssh")).unwrap();
        symlink(env!("CARGO_BIN_EXE_thalweg"), bin.join("thalweg")).unwrap();
        // These scripts replace the container programs, and run the command on this machine.
        for (name, words) in [("docker", 3), ("podman", 3), ("kubectl", 4)] {
            let text = "#!/bin/sh\nshift N\nmkdir -p \"$GUIDE/tmp\"\n\
                        exec \"$@\"\n";
            script(&bin.join(name), &text.replace('N', &words.to_string()));
        }
        // `/tmp` of a container is a directory of the test.
        let there = there.display();
        let block = block.replace(":/tmp/", &format!(":{there}/tmp/"));
        let here = scratch.folder("here");
        let line = format!(
            "export PATH={}:$PATH GUIDE='{there}'; set -euo pipefail\nmkdir -p '{there}/tmp'\n{block}",
            bin.display()
        );
        shell(&here, &line).expect(0);
    }
}
