//! Copies and syncs between machines with `--compress`, and peers that do not compress or send invalid frames.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
};
use thalweg_testing::script;

use crate::{
    fetch_trees::are_equal,
    remote_copies::over_each,
    remote_deltas::{counted, counting},
    remote_syncs::BothWays,
    support::{Ran, Scratch, bytes, names, run, sshd::OtherMachine, thalweg},
    sync_trees::record,
};

/// Length of the text and of the random file.
const LEN: usize = 8 << 20;

/// Makes text that compresses well, random data, a file with holes, and many small files.
fn make_source(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.folder("source");
    let lines: String = (0..).map(|n: u32| format!("line {n}\n")).take(LEN / 11).collect();
    fs::write(source.join("text"), lines).unwrap();
    bytes::write(&source.join("random"), 1, LEN as u64);
    File::create(source.join("holes")).unwrap().set_len(32 << 20).unwrap();
    bytes::write_at(&source.join("holes"), 2, 16 << 20, 4096);
    let many = scratch.folder("source/many");
    (0..300).for_each(|n| bytes::write(&many.join(n.to_string()), n, n * 20));
    fs::create_dir(source.join("empty")).unwrap();
    source
}

#[test]
fn content_is_equal_and_only_data_that_shrinks_costs_fewer_bytes() {
    over_each(
        "content_is_equal_and_only_data_that_shrinks_costs_fewer_bytes",
        |scratch, machine| {
            let source = make_source(scratch);
            let machine = &machine.through(counting(scratch, &machine.rsh));
            for is_push in [false, true] {
                let dst = scratch.join(&format!("dst{is_push}"));
                let both = BothWays { machine, source: source.clone(), is_push };
                both.sync(&["-z"], &dst).expect(0);
                let sent = counted(scratch) as usize;
                assert!((LEN..LEN + LEN / 3).contains(&sent), "{sent}");
                are_equal(&source, &dst);
                assert!(fs::metadata(dst.join("holes")).unwrap().blocks() < 1 << 13);
                bytes::write_at(&source.join("holes"), 3, 20 << 20, 100_000);
                fs::write(source.join("many/7"), "changed").unwrap();
                both.sync(&["-z", "--delete"], &dst).expect(0);
                let sent = counted(scratch);
                assert!(sent < 1 << 20, "{sent}");
                assert!(record(&source) == record(&dst));
            }
            let one = scratch.join("one");
            run(machine.copy(&["--compress"]).arg(machine.at(source.join("text"))).arg(&one))
                .expect(0);
            let back = scratch.join("back");
            run(machine.copy(&["--compress"]).arg(&one).arg(machine.at(&back))).expect(0);
            assert!(counted(scratch) < LEN as u64 / 2);
            assert!(fs::read(source.join("text")).unwrap() == fs::read(&back).unwrap());
        },
    );
}

/// Runs a compressed pull and a compressed push over a script.
fn both_over(scratch: &Scratch, text: &str) -> [Ran; 2] {
    let (rsh, root, to) = (scratch.join("rsh"), scratch.join("src"), scratch.join("to"));
    script(&rsh, &format!("#!/bin/bash\n{text}\n"));
    let command = || {
        let mut command = thalweg();
        command.args(["sync", "-z", "--no-install", "-e"]).arg(&rsh);
        command
    };
    let name = format!("h:{}", root.display());
    [
        run(command().arg(name).arg(&to)),
        run(command().arg(&root).arg(format!("h:{}", to.display()))),
    ]
}

#[test]
fn invalid_frames_end_the_copy_with_a_message() {
    let scratch = Scratch::new();
    bytes::write(&scratch.folder("src").join("f"), 1, 100_000);
    let preamble = r"thalweg zstd 1\n";
    for (frame, words) in [
        (r"\377\377\377\377", "its header is invalid"),
        (r"\001\004\000\000abcd", "Unknown frame descriptor"),
        (r"\000\001\000\003", "its header is invalid"),
    ] {
        for ran in both_over(&scratch, &format!("printf '{preamble}{frame}'; cat >/dev/null")) {
            ran.expect(1).expect_said(words);
        }
    }
    // The connection ends within a frame, after the preamble, and within the preamble.
    for text in [r"thalweg zstd 1\n\000\100\000\000GET", preamble, "thalweg"] {
        for ran in both_over(&scratch, &format!("head -c 1 >/dev/null & printf '{text}'")) {
            ran.expect(1).expect_said("thalweg: h: ");
        }
    }
    let [pull, push] = both_over(&scratch, "printf 'Welcome!\\n'; cat >/dev/null");
    pull.expect(1).expect_said("h: printed 'Welcome!' before the data");
    push.expect(1).expect_said("h: printed 'Welcome!' before the data");
    // Sends an answer that is not HTTP, in a valid frame.
    let text = format!(r"printf '{preamble}\000\006\000\000hello\n'; cat >/dev/null");
    let [pull, push] = both_over(&scratch, &text);
    pull.expect(1).expect_said("printed 'hello'");
    push.expect(1).expect_said("printed 'hello'");
    assert_eq!(names(scratch.path()), ["rsh", "src"]);
}

#[test]
fn a_peer_without_the_option_is_named() {
    let scratch = Scratch::new();
    bytes::write(&scratch.folder("src").join("f"), 1, 100_000);
    let old = "echo \"error: unexpected argument '--compress' found\" >&2; exit 2";
    let [pull, push] = both_over(&scratch, old);
    pull.expect(1).expect_said("the thalweg on h may be too old");
    push.expect(2).expect_said("unexpected argument '--compress'");
    let binary = env!("CARGO_BIN_EXE_thalweg");
    // A forced command drops the options of the client.
    let to = scratch.join("to");
    let forced = format!(
        "case $3 in serve) exec '{binary}' serve --stdio --hidden '{}';; \
         *) exec '{binary}' fetch --stdio -a '{}';; esac",
        scratch.join("src").display(),
        to.display()
    );
    for ran in both_over(&scratch, &forced) {
        ran.expect(1).expect_said("h: the remote thalweg runs without --compress");
    }
    let plain = |words: &[&str], rsh: &Path| {
        run(thalweg().args(["copy", "-a", "-e"]).arg(rsh).args(words).current_dir(scratch.path()))
    };
    let rsh = scratch.join("rsh");
    script(&rsh, &format!("#!/bin/sh\nexec '{binary}' serve --stdio --compress src\n"));
    let ran = plain(&["h:src/", "to"], &rsh).expect(1);
    ran.expect_said("the remote thalweg runs without --compress");
    script(&rsh, &format!("#!/bin/sh\nexec '{binary}' fetch --stdio --compress -a to\n"));
    plain(&["src/", "h:to"], &rsh).expect(1).expect_said("thalweg zstd 1");
    assert_eq!(names(scratch.path()), ["rsh", "src"]);
    for words in [["serve", "--compress"], ["fetch", "--compress"]] {
        run(thalweg().args(words).arg("x")).expect(2);
    }
}

#[test]
fn a_connection_that_breaks_within_a_frame_ends_the_copy() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = make_source(&scratch);
    let dst = scratch.join("dst");
    // The connection loses everything that the sending side sends after the first bytes. A read of a pipe may be short,
    // so dd counts single bytes.
    let broken = scratch.join("broken");
    let rsh = machine.rsh.display();
    script(&broken, &format!("#!/bin/sh\ndd bs=1 count=200000 status=none | '{rsh}' \"$@\"\n"));
    let push = machine.through(broken.clone());
    let ran = run(push.copy(&["-a", "-z"]).arg(source.join("")).arg(push.at(&dst)));
    assert!(matches!(ran.code(), 1 | 3), "{}", ran.said());
    assert!(!dst.exists());
    let once = scratch.join("once");
    // The script also ends the server, because the server's standard input would keep the connection open.
    let text = format!(
        "#!/bin/sh\nmkdir '{}' || exec '{rsh}' \"$@\"\n\
         '{rsh}' \"$@\" | {{ dd bs=1 count=200000 status=none; kill $(cat '{}'); }}\n",
        once.display(),
        scratch.join("pid").display()
    );
    script(&broken, &text);
    let pull = machine.through(broken);
    let here = scratch.join("here");
    let ran = run(pull.copy(&["-a", "-z"]).arg(pull.at(source.join(""))).arg(&here));
    ran.expect(0).expect_said("retrying");
    are_equal(&source, &here);
    run(machine.copy(&["-a", "-z"]).arg(source.join("")).arg(machine.at(&dst))).expect(0);
    are_equal(&source, &dst);
}
