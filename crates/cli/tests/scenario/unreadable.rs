//! Files and directories that the server may not read. The server serves all other entries, and a client that fetches
//! the tree reports the missing ones.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use thalweg_testing::script;

use crate::support::{
    Scratch, Served, bytes, names, run, shell,
    skip::{has_tools, is_root},
    thalweg,
};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes two files and a directory that can be read, and a file and a directory that cannot.
fn shared(scratch: &Scratch) -> PathBuf {
    let root = scratch.folder("shared");
    for folder in ["open", "shut"] {
        fs::create_dir(root.join(folder)).unwrap();
        bytes::write(&root.join(folder).join("inner"), 1, 1000);
        mode(&root.join(folder).join("inner"), 0o644);
        mode(&root.join(folder), 0o755);
    }
    for (n, name) in (0..).zip(["a", "closed", "z"]) {
        bytes::write(&root.join(name), n, 70_000 + n);
        mode(&root.join(name), 0o644);
    }
    mode(&root.join("closed"), 0);
    mode(&root, 0o755);
    root
}

/// Starts a server without root privileges, because root can read everything.
fn serve(root: &Path) -> Served {
    let is_root = rustix::process::geteuid().is_root();
    Served::with(root, if is_root { &["--user", "nobody"] } else { &[] })
}

fn get(served: &Served, path: &str) -> String {
    let mut stream = served.connect();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset ends the response early, so the error is ignored.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(served: &Served, path: &str) -> u16 {
    get(served, path)[9..12].parse().unwrap()
}

#[test]
fn what_the_server_may_not_read_is_forbidden_and_its_name_is_in_the_folder_all_the_same() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let served = serve(&root);
    mode(&root.join("shut"), 0);
    for (path, code) in [
        ("closed", 403),
        ("shut/", 403),
        ("shut/?json", 403),
        ("shut/?manifest", 403),
        ("shut/?tar", 403),
        ("shut/inner", 403),
        ("shut/none", 403),
        ("none", 404),
        ("a", 200),
        ("open/inner", 200),
    ] {
        assert_eq!(status(&served, path), code, "{path}");
    }
    for page in ["", "?json"] {
        let page = get(&served, page);
        assert!(page.contains("closed") && page.contains("shut"), "{page}");
    }
    let list = get(&served, "?manifest");
    // The first byte of each record marks a directory that was not read, with its own mode or that of the previous
    // entry.
    let is_unread =
        ["\u{12}\0\u{4}shut", "\u{1a}\0\u{4}shut"].iter().any(|shut| list.contains(shut));
    assert!(list.contains("closed") && is_unread, "{list}");
    // The list counts no omitted entries, and its last chunk is present.
    assert!(list.ends_with("\0\r\n0\r\n\r\n"), "{list}");
    // The archive has no last chunk, so that clients notice that it is incomplete.
    for closed in [0, 0o644] {
        mode(&root.join("closed"), closed);
        let tar = get(&served, "?tar");
        assert!(tar.starts_with("HTTP/1.1 200") && !tar.ends_with("0\r\n\r\n"));
    }
    assert!(get(&served, "open/?tar").ends_with("0\r\n\r\n"));
    mode(&root.join("shut"), 0o755);
}

#[test]
fn a_tree_with_a_file_that_may_not_be_read_comes_without_it_and_the_same_command_brings_it_later() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let (served, dst) = (serve(&root), scratch.join("dst"));
    let fetch = || {
        let mut command = thalweg();
        run(command.args(["fetch", "-r", "--json", &served.url]).arg(&dst))
    };
    run(thalweg().args(["fetch", &served.at("closed")]).arg(scratch.join("one")))
        .expect(1)
        .expect_said("403");
    assert!(!scratch.join("one").exists());
    for files in [4, 0] {
        let ran = fetch().expect(3);
        ran.expect_said("dst/closed': the server returned 403");
        ran.expect_said("1 entry failed");
        assert_eq!(ran.json()["files"], files);
        assert_eq!(names(&dst), ["a", "open", "shut", "z"]);
        bytes::expect(&dst.join("z"), 2, 70_002);
    }
    mode(&root.join("closed"), 0o644);
    assert_eq!(fetch().expect(0).json()["files"], 1);
    bytes::expect(&dst.join("closed"), 1, 70_001);
    // The entries of an unreadable directory are unknown.
    mode(&root.join("shut"), 0);
    let dst = scratch.join("other");
    let ran = run(thalweg().args(["fetch", "-r", &served.url]).arg(&dst));
    mode(&root.join("shut"), 0o755);
    ran.expect(3).expect_said("other/shut': the server has no permission to read this directory");
    assert_eq!(names(&dst), ["a", "closed", "open", "shut", "z"]);
}

/// In a copy to another machine, there may be only one connection. It must survive the answer to an unreadable file.
#[test]
fn an_unreadable_source_does_not_end_a_copy_or_sync_to_another_machine() {
    let test = "an_unreadable_source_does_not_end_a_copy_or_sync_to_another_machine";
    if !is_root(test) || !has_tools(test, &["setpriv", "cmp"]) {
        return;
    }
    for (words, file_size, dst) in [
        ("copy -r", "20M", "d"),
        ("sync --checksum", "20k", "d/s"),
        ("sync --checksum", "20M", "d/s"),
    ] {
        let scratch = Scratch::new();
        script(&scratch.join("rsh"), "#!/bin/sh\nshift\nexec \"$@\"\n");
        let line = format!(
            "chmod 755 .; cp $T t; mkdir s d d/s; for name in a closed z; do
             head -c {file_size} /dev/urandom >s/$name; truncate -s {file_size} d/s/$name; touch -d yesterday d/s/$name; done
             chmod 0 s/closed; chown -R 54321 s d
             setpriv --reuid=54321 --regid=54321 --clear-groups \
             ./t {words} -q -e ./rsh --remote-program $PWD/t s h:$PWD/{dst}; echo $?; cmp s/a d/s/a && cmp s/z d/s/z"
        );
        let ran = shell(scratch.path(), &line);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "3\n", "{words}: {}", ran.said());
        assert!(
            ran.said().contains("closed") && !ran.said().contains("has ended"),
            "{words}: {}",
            ran.said()
        );
    }
}
