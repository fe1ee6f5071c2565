//! Containers refuse some system calls with EPERM and others with ENOSYS. The copy falls back to another mechanism,
//! reports this, and is correct.

use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::symlink, net::UnixStream},
    path::Path,
    thread,
    time::Duration,
};

use crate::few_threads;
use crate::support::{
    Scratch, bytes,
    deny::{Call, FAST, LINK, LOCK, OPEN_BENEATH, RENAME, SYNC_SYSTEM, run_without, start_without},
    methods_calling, mounts, names, run,
    run::{GUARD, Ran},
    skip, thalweg,
};

const LEN: u64 = 3 * 1024 * 1024 + 5;
const ERRNOS: [(&str, i32); 2] = [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS)];

/// Copies while the kernel refuses these calls. Returns `None` if this machine does not allow seccomp filters.
fn copy_without(
    test: &str,
    calls: &[&Call],
    errno: i32,
    at: &Path,
    options: &[&str],
) -> Option<Ran> {
    let scratch = Scratch::within(at);
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    bytes::write(&source, 1, LEN);
    let mut command = thalweg();
    command.args(["copy", "--json"]).args(options).args([&source, &copy]);
    let ran = run_without(calls, errno, &mut command);
    let ran = ran.inspect_err(|reason| skip(test, &format!("no seccomp: {reason}"))).ok()?;
    let ran = ran.expect_no_panic();
    if ran.code() == 0 {
        bytes::expect(&copy, 1, LEN);
        assert_eq!(names(scratch.path()), ["copy", "source"]);
    } else {
        assert_eq!(names(scratch.path()), ["source"]);
    }
    Some(ran)
}

/// Returns `true` if the JSON object reports that this mechanism could not be used or could not continue.
fn mentions(account: &Value, mechanism: &str) -> bool {
    let list = |key: &str| account[key].as_array().cloned().unwrap_or_default();
    list("steps_down").iter().any(|step| step["from"] == mechanism)
        || list("unavailable").iter().any(|unfit| unfit["name"] == mechanism)
}

#[test]
fn a_copy_that_leaves_the_choice_open_never_fails_for_a_refused_call() {
    let test = "a_copy_that_leaves_the_choice_open_never_fails_for_a_refused_call";
    let here = Scratch::new();
    for (name, errno) in ERRNOS {
        for call in &FAST {
            let Some(ran) = copy_without(test, &[call], errno, here.path(), &[]) else { return };
            let account = ran.expect(0).json();
            assert_eq!(account["bytes"], LEN, "{} {name}", call.name);
            let used = account["mechanism"].as_str().expect("a mechanism").to_owned();
            let without = methods_calling(call.listed);
            assert!(!without.contains(&used), "{used} moved the bytes without {}", call.name);
        }
    }
}

#[test]
fn a_mechanism_requested_by_name_reports_the_refused_call() {
    let test = "a_mechanism_requested_by_name_reports_the_refused_call";
    let places = ["ext4", "btrfs", "xfs"].map(|name| mounts().get(test, name));
    let mut told = 0;
    for (name, errno) in ERRNOS {
        for call in &FAST {
            for method in methods_calling(call.listed) {
                for place in places.into_iter().flatten() {
                    let options = ["--method", &method];
                    let ran = copy_without(test, &[call], errno, place, &options);
                    let Some(ran) = ran else { return };
                    let context = format!("{method} without {} ({name})", call.name);
                    match ran.code() {
                        0 => assert!(mentions(&ran.json(), &method), "{context}: {}", ran.said()),
                        4 => assert!(ran.stderr.contains(&method), "{context}: {}", ran.said()),
                        _ => panic!("{context}: {}", ran.said()),
                    }
                    told += 1;
                }
            }
        }
    }
    assert!(told > 0 || places == [None; 3], "no mechanism makes any of the refused calls");
}

#[test]
fn with_every_fast_call_refused_the_plain_way_remains() {
    let test = "with_every_fast_call_refused_the_plain_way_remains";
    let all: Vec<&Call> = FAST.iter().collect();
    let places = ["ext4", "btrfs"].map(|name| mounts().get(test, name));
    let here = Scratch::new();
    for (name, errno) in ERRNOS {
        for place in places.into_iter().flatten().chain([here.path()]) {
            for options in [vec![], vec!["--verify"], vec!["--zero-copy"], vec!["--direct"]] {
                let ran = copy_without(test, &all, errno, place, &options);
                let Some(ran) = ran else { return };
                let said = ran.said();
                assert_eq!(ran.code(), 0, "{name} {options:?} {}: {said}", place.display());
            }
        }
    }
}

#[test]
fn tuning_leaves_out_what_is_refused_and_says_why() {
    let test = "tuning_leaves_out_what_is_refused_and_says_why";
    let all: Vec<&Call> = FAST.iter().collect();
    let here = Scratch::new();
    let options = ["--tune", "--no-profile"];
    let Some(ran) = copy_without(test, &all, libc::EPERM, here.path(), &options) else { return };
    let account = ran.expect(0).json();
    let arms = account["tune"]["arms"].as_array().expect("the arms that were measured").clone();
    let refused = FAST.iter().flat_map(|call| methods_calling(call.listed));
    for method in refused {
        assert!(!arms.iter().any(|arm| arm["name"] == method), "{method} was measured");
        let unavailable = account["unavailable"].as_array().expect("a list");
        let entry = unavailable.iter().find(|unfit| unfit["name"] == method);
        let reason = entry.and_then(|unfit| unfit["reason"].as_str());
        assert!(reason.is_some_and(|reason| !reason.is_empty()), "{method}: no reason: {account}");
    }
    assert!(arms.len() >= 2, "{account}");
}

#[test]
fn a_stream_goes_on_without_the_refused_calls() {
    let test = "a_stream_goes_on_without_the_refused_calls";
    let scratch = Scratch::new();
    let source = scratch.join("source");
    bytes::write(&source, 1, LEN);
    let all: Vec<&Call> = FAST.iter().collect();
    let ones = FAST.iter().map(|call| vec![call]);
    for calls in ones.chain([all]) {
        for (name, errno) in ERRNOS {
            for way in [vec![], vec!["--zero-copy"]] {
                let tee = scratch.join("tee");
                let mut pipe = thalweg();
                pipe.args(["pipe", "--json", "--tee"]).arg(&tee).args(&way);
                pipe.stdin(fs::File::open(&source).unwrap());
                let ran = match run_without(&calls, errno, &mut pipe) {
                    Ok(ran) => ran.expect(0),
                    Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
                };
                let whole = ran.stdout == bytes::of(1, LEN as usize);
                assert!(whole, "{} {name} {way:?}: other bytes came out", calls[0].name);
                bytes::expect(&tee, 1, LEN);
                assert_eq!(ran.json_on_stderr()["bytes"], LEN);
            }
        }
    }
}

#[test]
fn a_tree_is_copied_without_the_refused_calls() {
    let test = "a_tree_is_copied_without_the_refused_calls";
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    for n in 0..12_u64 {
        bytes::write(&tree.join(n.to_string()), n, n * n * n * 3000);
    }
    let all: Vec<&Call> = FAST.iter().collect();
    for (_, errno) in ERRNOS {
        let copy = scratch.join("copy");
        let mut command = thalweg();
        command.args(["copy", "-a", "--json"]).args([&tree, &copy]);
        match run_without(&all, errno, &mut command) {
            Ok(ran) => drop(ran.expect(0)),
            Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
        }
        for n in 0..12_u64 {
            bytes::expect(&copy.join(n.to_string()), n, n * n * n * 3000);
        }
        fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn without_locks_an_unfinished_file_may_be_alive_and_is_left_alone() {
    let test = "without_locks_an_unfinished_file_may_be_alive_and_is_left_alone";
    let errnos = [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP, libc::EIO, libc::EPERM];
    for (errno, options) in errnos.into_iter().flat_map(|e| [(e, &[][..]), (e, &["--resume"])]) {
        let scratch = Scratch::new();
        let part = scratch.join(".copy.thalweg-part");
        bytes::write(&part, 2, LEN / 2);
        bytes::write(&scratch.join("source"), 1, LEN);
        let mut command = thalweg();
        command.arg("copy").args(options);
        command.args([scratch.join("source"), scratch.join("copy")]);
        match run_without(&[&LOCK], errno, &mut command) {
            Ok(ran) => drop(ran.expect_no_panic().expect(0)),
            Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
        }
        bytes::expect(&scratch.join("copy"), 1, LEN);
        bytes::expect(&part, 2, LEN / 2);
    }
}

#[test]
fn without_renames_or_links_nothing_is_lost_and_nothing_is_left() {
    let test = "without_renames_or_links_nothing_is_lost_and_nothing_is_left";
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL, libc::EOPNOTSUPP] {
        for calls in [&[&RENAME][..], &[&LINK], &[&RENAME, &LINK], &[&RENAME, &LINK, &LOCK]] {
            let scratch = Scratch::new();
            let tree = scratch.folder("tree");
            for (name, len) in [("small", 10), ("large", LEN)] {
                bytes::write(&tree.join(name), 1, len);
                bytes::write(&scratch.join(name), 2, 1000);
            }
            fs::hard_link(tree.join("large"), tree.join("other")).unwrap();
            let mut copies = vec![(vec!["-a"], tree.clone(), scratch.join("new"))];
            for name in ["small", "large"] {
                copies.push((vec!["--verify"], tree.join(name), scratch.join(name)));
                copies.push((
                    vec!["--resume"],
                    tree.join(name),
                    scratch.join(&format!("n-{name}")),
                ));
            }
            for (options, from, to) in copies {
                let mut command = thalweg();
                command.arg("copy").args(options).args([from, to]);
                match run_without(calls, errno, &mut command) {
                    Ok(ran) => drop(ran.expect(0)),
                    Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
                }
            }
            for (name, len) in [("small", 10), ("large", LEN)] {
                for path in [format!("new/{name}"), name.to_owned(), format!("n-{name}")] {
                    bytes::expect(&scratch.join(&path), 1, len);
                }
            }
            bytes::expect(&scratch.join("new/other"), 1, LEN);
            assert_eq!(names(&scratch.join("new")), ["large", "other", "small"]);
            let all = ["large", "n-large", "n-small", "new", "small", "tree"];
            assert_eq!(names(scratch.path()), all);
        }
    }
}

#[test]
fn a_hard_link_that_is_refused_becomes_a_copy_and_that_is_said() {
    let test = "a_hard_link_that_is_refused_becomes_a_copy_and_that_is_said";
    let scratch = Scratch::new();
    let tree = scratch.folder("tree");
    bytes::write(&tree.join("a"), 1, LEN);
    for name in ["b", "c"] {
        fs::hard_link(tree.join("a"), tree.join(name)).unwrap();
    }
    let mut command = thalweg();
    command.args(["copy", "-a", "--progress=always"]).args([&tree, &scratch.join("new")]);
    let ran = match run_without(&[&LINK], libc::EPERM, &mut command) {
        Ok(ran) => ran.expect(0),
        Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
    };
    ran.expect_said("linkat: EPERM");
    let text = &ran.stderr;
    assert!(
        text.contains("3 files copied") && text.contains("2 copied instead of linked"),
        "{text}"
    );
    for name in ["a", "b", "c"] {
        bytes::expect(&scratch.join("new").join(name), 1, LEN);
    }
}

#[test]
fn without_openat2_a_server_follows_no_link() {
    let test = "without_openat2_a_server_follows_no_link";
    let scratch = Scratch::new();
    let root = scratch.folder("root");
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("folder/file"), "text").unwrap();
    fs::write(scratch.join("outside"), "secret").unwrap();
    symlink("../outside", root.join("out")).unwrap();
    symlink("/etc", root.join("absolute")).unwrap();
    symlink("folder", root.join("in")).unwrap();
    for (name, errno) in ERRNOS {
        let socket = scratch.join(name);
        let mut serve = thalweg();
        serve.args(["serve", "--unix"]).arg(&socket).arg(&root);
        let mut served = match start_without(&[&OPEN_BENEATH], errno, &mut serve) {
            Ok(served) => served,
            Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
        };
        let ask = |path: &str| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(GUARD)).unwrap();
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        while UnixStream::connect(&socket).is_err() {
            assert!(!served.has_ended(), "{}", served.finish().said());
            thread::sleep(Duration::from_millis(5));
        }
        for found in ["/folder/file", "/folder/"] {
            assert_eq!(ask(found).split(' ').nth(1), Some("200"), "{found} {name}");
        }
        for nothing in ["/in/file", "/in/", "/out", "/absolute/passwd", "/folder/%2e%2e/out"] {
            assert_eq!(ask(nothing).split(' ').nth(1), Some("404"), "{nothing} {name}");
        }
        let _ = served.child().kill();
    }
}

#[test]
fn sessions_are_removed_only_after_their_result_is_on_the_disk() {
    let test = "sessions_are_removed_only_after_their_result_is_on_the_disk";
    let scratch = Scratch::new();
    let study = scratch.join("nothing.toml");
    fs::write(&study, few_threads::STUDY).unwrap();
    let command = || {
        let mut command = thalweg();
        command.args([
            "study",
            "--sample=1ms",
            "--pause=0s",
            "--sessions=2",
            "--rounds=2",
            "--seed=1",
        ]);
        command.arg("--at").arg(scratch.path()).arg("--save").arg(scratch.join("kept")).arg(&study);
        command.env("XDG_STATE_HOME", scratch.join("state"));
        command
    };
    let ran = match run_without(&[&SYNC_SYSTEM], libc::EIO, &mut command()) {
        Ok(ran) => ran.expect(1),
        Err(reason) => return skip(test, &format!("no seccomp: {reason}")),
    };
    ran.expect_said("900.json: syncfs: EIO");
    ran.expect_said("2 sessions are kept");
    let ran = run(&mut command()).expect(0);
    ran.expect_said("2 of 2 sessions done");
    ran.expect_said("/900.json");
}
