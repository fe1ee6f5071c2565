//! Syncs with `--delete` from a peer that sends a false list. The destination keeps everything, whichever side
//! connects.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};
use thalweg_testing::script;

use crate::{
    support::{Scratch, run, shell, thalweg},
    sync_trees::record,
};

/// A server that answers a request for a list with the file `list` (for HEAD only its header), and all other requests
/// with `file`. If `once` exists, the server ends after the list.
const LIAR: &str = "#!/bin/sh
while read -r request; do
    while read -r header && [ ${#header} -gt 1 ]; do :; done
    case $request in
    HEAD*) sed '/^.$/q' 'HERE/list' ;;
    *manifest*) cat 'HERE/list' && [ ! -e HERE/once ] || exit ;;
    *) cat 'HERE/file' ;;
    esac
done
";

/// Number of bytes before the first record of a list.
const BEGINNING: usize = 9;
/// Number of bytes of the end of a list: its type, and three numbers below 128.
const END: usize = 4;

/// Returns the list that thalweg serves for a directory, and the header with its version.
fn honest_list(source: &Path) -> (Vec<u8>, String) {
    let mut serve = thalweg();
    serve.args(["serve", "--stdio", "--hidden", "--follow=none"]).arg(source);
    let mut child = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = b"GET /?manifest HTTP/1.0\r\nHost: x\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    let answer = child.wait_with_output().unwrap().stdout;
    let body = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let head = str::from_utf8(&answer[..body]).unwrap();
    let version = head.lines().find(|line| line.to_lowercase().starts_with("thalweg:")).unwrap();
    let list = answer[body..].to_vec();
    assert!(list.starts_with(b"thwglist") && list[list.len() - END] == 0, "{list:?}");
    (list, version.to_owned())
}

/// Returns a response with this list. Its header announces `more` additional bytes.
fn answer(status: &str, version: &str, list: &[u8], more: usize) -> Vec<u8> {
    let length = list.len() + more;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/vnd.thalweg.list\r\n{version}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), list].concat()
}

/// Returns the false responses, each with a name, and with `true` if the connection ends after the response. `smaller`:
/// the list of a source that lacks one file; `empty`: the list of an empty source.
fn lies(
    honest: &[u8],
    smaller: &[u8],
    empty: &[u8],
    version: &str,
) -> Vec<(&'static str, Vec<u8>, bool)> {
    let with = |list: &[u8]| answer("200 OK", version, list, 0);
    let (begin, records) = honest.split_at(BEGINNING);
    let (entries, end) = records.split_at(records.len() - END);
    let left_out = [&honest[..honest.len() - 1], &[1]].concat();
    vec![
        ("no end", with(&[begin, entries].concat()), false),
        ("an entry is missing", with(&[&smaller[..smaller.len() - END], end].concat()), false),
        ("an entry was left out", with(&left_out), false),
        ("the end comes first", with(&[begin, end, entries].concat()), false),
        ("only the end", with(&[begin, end].concat()), false),
        ("the list twice", with(&[honest, honest].concat()), false),
        ("the records twice", with(&[honest, records].concat()), false),
        ("entries after the end", with(&[honest, entries].concat()), false),
        ("an empty source", with(empty), false),
        ("an empty body", with(&[]), false),
        ("a body that ends early", answer("200 OK", version, honest, 1000), true),
        ("not found", answer("404 Not Found", version, honest, 0), false),
        ("an error", answer("500 Internal Server Error", version, honest, 0), false),
        ("a part", answer("206 Partial Content", version, honest, 0), false),
    ]
}

/// Returns a sync from the false server. `is_push`: `true` if the false server starts thalweg.
fn sync_from(scratch: &Scratch, is_push: bool, words: &[&str], copy: &Path) -> Command {
    let liar = scratch.join("liar");
    if !is_push {
        let mut pull = thalweg();
        pull.args(["sync", "--delete", "--no-install"]).args(words).arg("-e");
        pull.arg(&liar).arg("host:src").arg(copy);
        return pull;
    }
    let line = "rm -f to from; mkfifo to from; \"$LIAR\" <to >from & exec \"$@\" >to <from";
    let fetch = [
        "fetch",
        "--stdio",
        "--encoded",
        "--all-links",
        "-a",
        "--sync",
        "--delete",
        "--from=host:src",
    ];
    let mut receive = Command::new("bash");
    receive.args(["-c", line, "bash"]).arg(thalweg().get_program()).args(fetch).args(words);
    receive.arg(copy);
    receive.env("LIAR", liar).current_dir(scratch.path());
    receive
}

#[test]
fn a_peer_that_lies_about_its_list_deletes_nothing() {
    let scratch = Scratch::new();
    let place = scratch.path().display().to_string();
    script(&scratch.join("liar"), &LIAR.replace("HERE", &place));
    let line = "mkdir -p source/d; echo 1 >source/a; echo 2 >source/b; echo 3 >source/d/c; ln -s a source/l; \\
                mkdir empty; cp -a source smaller; rm smaller/d/c; \
                cp -a source copy; echo x >copy/extra; mkdir copy/d/more; echo y >copy/d/more/file";
    shell(scratch.path(), line).expect(0);
    let copy = scratch.join("copy");
    let (honest, version) = honest_list(&scratch.join("source"));
    let (smaller, _) = honest_list(&scratch.join("smaller"));
    let (empty, _) = honest_list(&scratch.join("empty"));
    let before = record(&copy);
    let body = format!("HTTP/1.1 200 OK\r\n{version}\r\nContent-Length: 1\r\n\r\nx");
    fs::write(scratch.join("file"), body).unwrap();
    let options: [&[&str]; 2] = [&[], &["--copy-links", "--one-file-system", "--verify"]];
    let ways = options.into_iter().flat_map(|words| [(words, false), (words, true)]);
    for (words, is_push) in ways {
        for (lie, list, ends) in lies(&honest, &smaller, &empty, &version) {
            fs::write(scratch.join("list"), list).unwrap();
            drop(fs::remove_file(scratch.join("once")));
            if ends {
                fs::write(scratch.join("once"), "").unwrap();
            }
            let ran = run(&mut sync_from(&scratch, is_push, words, &copy)).expect_no_panic();
            assert_ne!(ran.status.code(), Some(0), "{lie}, push: {is_push}: {}", ran.said());
            // Compares the names only, because the sync may have changed the times of the directory itself.
            let after = record(&copy);
            assert!(
                before.entries.keys().eq(after.entries.keys()),
                "{lie}, push: {is_push}: {}",
                ran.said()
            );
        }
        // The correct list deletes the extra entry.
        let kept = scratch.join("kept");
        shell(scratch.path(), "rm -rf kept once; cp -a copy kept").expect(0);
        fs::write(scratch.join("list"), answer("200 OK", &version, &honest, 0)).unwrap();
        let ran = run(&mut sync_from(&scratch, is_push, words, &kept));
        if words.is_empty() {
            ran.expect(0);
            assert_eq!(record(&kept), record(&scratch.join("source")));
        } else {
            // The peer sends false files without digests, so nothing is deleted.
            assert_ne!(ran.status.code(), Some(0), "{}", ran.said());
            assert!(record(&kept).entries.keys().eq(before.entries.keys()));
        }
    }
}
