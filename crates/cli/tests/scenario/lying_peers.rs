//! Syncs with `--delete` whose other side lies about its list: the destination keeps everything, whichever side connects.

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

/// Answers each request for a list with one file and all others with another one. If `once` exists, it ends after the list.
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

/// The list that an honest server sends of a directory, and the header with its version.
fn honest_list(source: &Path) -> (Vec<String>, String) {
    let mut serve = thalweg();
    serve.args(["serve", "--stdio", "--hidden", "--follow=none"]).arg(source);
    let mut child = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = b"GET /?manifest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    let answer = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let version = head.lines().find(|line| line.to_lowercase().starts_with("thalweg:")).unwrap();
    let lines = body.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
    (lines, version.to_owned())
}

/// A lie about a list, as the bytes of an answer; its header has the version of a server.
fn answer(status: &str, version: &str, lines: &[String], more: usize) -> String {
    let body: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let length = body.len() + more;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/jsonl\r\n{version}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// The lies, each with its name and whether the connection ends after it.
fn lies(honest: &[String], version: &str) -> Vec<(&'static str, String, bool)> {
    let (end, entries) = honest.split_last().unwrap();
    let with = |changed: Vec<String>| answer("200 OK", version, &changed, 0);
    let without_end = entries.to_vec();
    let without_entry = [&entries[..entries.len() - 1], std::slice::from_ref(end)].concat();
    let left_out = [entries, &[end.replace(r#""left_out":0"#, r#""left_out":1"#)]].concat();
    let end_first = [&entries[..1], std::slice::from_ref(end), &entries[1..]].concat();
    let only_end = vec![end.clone()];
    let twice = [honest, honest].concat();
    let after_end = [honest, &entries[1..2]].concat();
    let no_entries =
        vec![entries[0].clone(), r#"{"type":"end","entries":1,"bytes":0,"left_out":0}"#.to_owned()];
    vec![
        ("no end", with(without_end), false),
        ("an entry is missing", with(without_entry), false),
        ("an entry was left out", with(left_out), false),
        ("the end comes first", with(end_first), false),
        ("only the end", with(only_end), false),
        ("the list twice", with(twice), false),
        ("an entry after the end", with(after_end), false),
        ("an empty source", with(no_entries), false),
        ("an empty body", with(Vec::new()), false),
        ("a body that ends early", answer("200 OK", version, honest, 1000), true),
        ("not found", answer("404 Not Found", version, honest, 0), false),
        ("an error", answer("500 Internal Server Error", version, honest, 0), false),
        ("a part", answer("206 Partial Content", version, honest, 0), false),
    ]
}

/// A sync from the liar: by a connection that this side makes, or by one that the liar made.
fn sync_from(scratch: &Scratch, is_push: bool, copy: &Path) -> Command {
    let liar = scratch.join("liar");
    if !is_push {
        let mut pull = thalweg();
        pull.args(["sync", "--delete", "--no-install", "-e"]).arg(&liar).arg("host:src").arg(copy);
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
    receive.args(["-c", line, "bash"]).arg(thalweg().get_program()).args(fetch).arg(copy);
    receive.env("LIAR", liar).current_dir(scratch.path());
    receive
}

#[test]
fn a_peer_that_lies_about_its_list_deletes_nothing() {
    let scratch = Scratch::new();
    let place = scratch.path().display().to_string();
    script(&scratch.join("liar"), &LIAR.replace("HERE", &place));
    let line = "mkdir -p source/d; echo 1 >source/a; echo 2 >source/b; echo 3 >source/d/c; ln -s a source/l; \\
                cp -a source copy; echo x >copy/extra; mkdir copy/d/more; echo y >copy/d/more/file";
    shell(scratch.path(), line).expect(0);
    let copy = scratch.join("copy");
    let (honest, version) = honest_list(&scratch.join("source"));
    let before = record(&copy);
    let body = format!("HTTP/1.1 200 OK\r\n{version}\r\nContent-Length: 1\r\n\r\nx");
    fs::write(scratch.join("file"), body).unwrap();
    for is_push in [false, true] {
        for (lie, list, ends) in lies(&honest, &version) {
            fs::write(scratch.join("list"), list).unwrap();
            drop(fs::remove_file(scratch.join("once")));
            if ends {
                fs::write(scratch.join("once"), "").unwrap();
            }
            let ran = run(&mut sync_from(&scratch, is_push, &copy)).expect_no_panic();
            assert_ne!(ran.status.code(), Some(0), "{lie}, push: {is_push}: {}", ran.said());
            // The times of the directory itself may have been made equal.
            let after = record(&copy);
            assert!(
                before.entries.keys().eq(after.entries.keys()),
                "{lie}, push: {is_push}: {}",
                ran.said()
            );
        }
        // An honest list deletes.
        let kept = scratch.join("kept");
        shell(scratch.path(), "rm -rf kept once; cp -a copy kept").expect(0);
        fs::write(scratch.join("list"), answer("200 OK", &version, &honest, 0)).unwrap();
        run(&mut sync_from(&scratch, is_push, &kept)).expect(0);
        assert_eq!(record(&kept), record(&scratch.join("source")));
    }
}
