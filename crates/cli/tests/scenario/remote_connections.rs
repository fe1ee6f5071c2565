//! Copies and syncs to another machine over several connections, some of which fail.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};
use thalweg_testing::script;

use crate::{
    remote_copies::over_each,
    support::{Ran, Scratch, bytes, run, shell, sshd::OtherMachine},
    sync_trees::{STATE, record},
};

/// Number of connections in these tests.
const MOST: usize = 4;
/// Shell text that connects.
const CONNECT: &str = "exec \"$RSH\" \"$@\"";
/// Shell text that connects, and loses everything that the sending side sends after the first bytes. A read of a pipe may
/// be short, so dd counts single bytes.
const BREAK: &str = "dd bs=1 count=100000 status=none | \"$RSH\" \"$@\"; exit 255";

/// A tree of many small files with a group of hard links, and a large file.
pub fn make_source(scratch: &Scratch) -> PathBuf {
    let source = scratch.folder("source");
    for n in 0..1500 {
        let directory = source.join(format!("d{}", n % 30));
        fs::create_dir_all(&directory).unwrap();
        bytes::write(&directory.join(format!("f{n}")), n, 2000 + n);
    }
    for n in 0..3 {
        fs::hard_link(source.join("d7/f7"), source.join(format!("d{n}/linked"))).unwrap();
    }
    bytes::write(&source.join("large"), 1, 18 << 20);
    symlink("large", source.join("link")).unwrap();
    source
}

/// Returns a machine whose first connection runs one shell text, and each further one another. Each connection adds a
/// line to the file `log`.
fn through(scratch: &Scratch, machine: &OtherMachine, first: &str, further: &str) -> OtherMachine {
    let rsh = scratch.join("several");
    let (log, inner) = (scratch.join("log"), machine.rsh.display());
    let text = format!(
        "#!/bin/sh\nRSH='{inner}'\necho x >>'{}'\ncase \"$*\" in\n*--join*) {further} ;;\n*) {first} ;;\nesac\n",
        log.display()
    );
    script(&rsh, &text);
    machine.through(rsh)
}

/// Returns the number of connections since the last call.
fn connections(scratch: &Scratch) -> usize {
    let log = fs::read_to_string(scratch.join("log")).unwrap();
    fs::remove_file(scratch.join("log")).unwrap();
    log.lines().count()
}

fn push(machine: &OtherMachine, name: &str, words: &[&str], paths: [&Path; 2]) -> Ran {
    // The limit gives all connections time to take part.
    push_at("--limit=16M", machine, name, words, paths)
}

fn push_at(
    limit: &str,
    machine: &OtherMachine,
    name: &str,
    words: &[&str],
    paths: [&Path; 2],
) -> Ran {
    let mut command = machine.between((name, words), true, paths);
    run(command.args(["--connections=4", "--jobs=4", limit]))
}

#[test]
fn several_connections_make_the_tree_of_one() {
    over_each("several_connections_make_the_tree_of_one", |scratch, machine| {
        let source = make_source(scratch);
        let machine = through(scratch, machine, CONNECT, CONNECT);
        let one = scratch.join("one");
        run(machine.run("sync", &[]).arg(&source).arg(machine.at(&one))).expect(0);
        assert_eq!(connections(scratch), 1);
        let wanted = record(&one);
        assert!(wanted == record(&source));
        let contents = source.join("");
        for (name, words) in
            [("sync", &["-z", "--delete"][..]), ("copy", &["-a"]), ("sync", &["--verify"])]
        {
            let dst = scratch.join("several-dst");
            let ran = push(&machine, name, words, [&contents, &dst]).expect(0);
            assert_eq!(ran.stderr, "", "{name} {words:?}");
            assert!(record(&dst) == wanted, "{name} {words:?}");
            assert_eq!(connections(scratch), MOST, "{name} {words:?}");
            let ino = |path: &str| fs::metadata(dst.join(path)).unwrap().ino();
            assert_eq!(ino("d0/linked"), ino("d7/f7"));
            // Without work for the other connections, one is enough.
            push(&machine, name, words, [&contents, &dst]).expect(0);
            assert!(name == "sync" && words == ["--verify"] || connections(scratch) == 1);
            drop(fs::remove_file(scratch.join("log")));
            fs::remove_dir_all(&dst).unwrap();
        }
    });
}

#[test]
fn a_further_connection_that_ends_or_is_refused_loses_nothing() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = make_source(&scratch);
    let dst = scratch.join("dst");
    let refuse = "echo 'too many sessions' >&2; exit 255";
    // A host name may lead to several machines.
    let elsewhere = concat!("exec ", env!("CARGO_BIN_EXE_thalweg"), " fetch --stdio --join 0");
    for (further, said) in [
        (BREAK, "exited with status 255; continuing with fewer connections"),
        (refuse, "elsewhere: too many sessions"),
        ("kill -9 $$", "was killed by signal 9; continuing with fewer connections"),
        (elsewhere, "cannot join the first connection"),
    ] {
        let machine = through(&scratch, &machine, CONNECT, further);
        fs::create_dir(&dst).unwrap();
        fs::write(dst.join("extra"), "x").unwrap();
        let ran = push(&machine, "sync", &["--delete"], [&source, &dst]).expect(0);
        ran.expect_said(said);
        ran.expect_said("elsewhere: a further connection");
        assert!(record(&dst) == record(&source), "{said}");
        assert_eq!(connections(&scratch), MOST, "{said}");
        fs::remove_dir_all(&dst).unwrap();
    }
}

/// As sshd does with MaxSessions, or a host that limits logins.
#[test]
fn a_copy_from_a_machine_that_refuses_further_connections_uses_those_it_has() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = make_source(&scratch);
    let (first, rsh) = (scratch.join("first"), scratch.join("once"));
    let text = format!(
        "#!/bin/sh\nmkdir '{}' 2>/dev/null || {{ echo 'too many sessions' >&2; exit 255; }}\nexec '{}' \"$@\"\n",
        first.display(),
        machine.rsh.display()
    );
    script(&rsh, &text);
    let machine = machine.through(rsh);
    let dst = scratch.join("dst");
    let words = ["--connections=4", "--jobs=4", "--limit=16M"];
    let ran = run(&mut machine.between(("sync", &words), false, [&source, &dst])).expect(0);
    ran.expect_said("elsewhere: too many sessions");
    assert!(record(&dst) == record(&source));
}

#[test]
fn nothing_is_deleted_if_the_first_connection_ends_early() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = make_source(&scratch);
    let dst = scratch.folder("dst");
    fs::write(dst.join("extra"), "x").unwrap();
    // Kills thalweg on the other machine, long before the copy can be complete.
    let kill = "exec 3<&0; \"$RSH\" \"$@\" <&3 & sleep 0.5; kill -9 $!; exit 255";
    for (first, further) in [(kill, CONNECT), (BREAK, BREAK)] {
        let machine = through(&scratch, &machine, first, further);
        let limit = if further == CONNECT { "--limit=2M" } else { "--limit=16M" };
        let ran = push_at(limit, &machine, "sync", &["--delete"], [&source, &dst]).expect(1);
        ran.expect_said("elsewhere: ");
        assert!(dst.join("extra").exists());
    }
    push(&machine, "sync", &["--delete"], [&source, &dst]).expect(0);
    assert!(record(&dst) == record(&source));
}

#[test]
fn a_restricted_key_uses_one_connection() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = make_source(&scratch);
    let (dst, binary) = (scratch.join("dst"), env!("CARGO_BIN_EXE_thalweg"));
    for option in ["", "--accept=0123"] {
        let forced =
            format!("exec '{binary}' fetch --stdio -a --all-links {option} '{}'", dst.display());
        let machine = through(&scratch, &machine, &forced, &forced);
        push(&machine, "copy", &["-a"], [&source, Path::new("ignored")]).expect(0);
        assert!(record(&dst) == record(&source));
        assert_eq!(connections(&scratch), 1);
        fs::remove_dir_all(&dst).unwrap();
    }
    assert!(!source.join(STATE).exists());
    shell(scratch.path(), "$T fetch --join 0").expect(2);
    shell(scratch.path(), "$T fetch --stdio --join 0 </dev/null >/dev/null").expect(1);
}
