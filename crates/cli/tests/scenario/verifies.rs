//! `thalweg verify SRC DST` reports every kind of difference between a copy and its source.

use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs::{self, File, FileTimes},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    process::Command,
};

use crate::support::{Scratch, bytes, run, run::Ran, scratch::open_to_all, shell, skip, thalweg};

/// Names that are difficult in lines, arguments or terminals.
const NAMES: [&[u8]; 8] =
    [b"plain", b"new\nline", b"back\\slash", b"\xff\xfe", b" lead", b"-dash", b"cr\r", b"#hash"];

/// Makes a tree with odd names, links, a FIFO and an empty directory, and copies it.
fn trees() -> Scratch {
    let scratch = Scratch::new();
    let source = scratch.folder("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    for name in NAMES {
        let name = OsStr::from_bytes(name);
        fs::write(source.join(name), "one").unwrap();
        fs::write(source.join("deep/er").join(name), "two").unwrap();
    }
    symlink("plain", source.join("link")).unwrap();
    fs::hard_link(source.join("plain"), source.join("twin")).unwrap();
    run(Command::new("mkfifo").arg(source.join("fifo"))).expect(0);
    bytes::write(&source.join("large"), 1, 20 << 20);
    let mut copy = thalweg();
    copy.args(["copy", "-a"]).args([source, scratch.join("copy")]);
    run(&mut copy).expect(0);
    scratch
}

fn verify(scratch: &Scratch, options: &[&str]) -> Ran {
    let mut command = thalweg();
    command.arg("verify").args(options).current_dir(scratch.path());
    run(&mut command)
}

fn lines(ran: &Ran) -> Vec<Value> {
    let text = String::from_utf8(ran.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_copy_with_odd_names_links_and_special_files_is_the_same() {
    let scratch = trees();
    let ran = verify(&scratch, &["--attributes", "--json", "source", "copy"]).expect(0);
    let sum = lines(&ran).pop().unwrap();
    let files = 2 * NAMES.len() as u64 + 2;
    assert_eq!(
        (&sum["same"], &sum["folders"], &sum["others"]),
        (&json!(files), &json!(3), &json!(2))
    );
}

#[test]
fn every_difference_is_named_with_where_it_begins() {
    let scratch = trees();
    let copy = scratch.join("copy");
    bytes::spoil(&copy.join("deep/er/plain"), 2);
    bytes::spoil(&copy.join("large"), 19 << 20);
    bytes::spoil(&copy.join("large"), 9 << 20);
    fs::write(copy.join("-dash"), "one and more").unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    symlink("elsewhere", copy.join("link")).unwrap();
    fs::remove_dir(copy.join("empty")).unwrap();
    fs::write(copy.join("empty"), "").unwrap();
    fs::remove_file(copy.join("deep").join("er").join(OsStr::from_bytes(b"\xff\xfe"))).unwrap();
    fs::create_dir(copy.join("more")).unwrap();
    fs::write(copy.join("more/than"), "was copied").unwrap();
    let ran = verify(&scratch, &["source", "copy"]).expect(1);
    let said = String::from_utf8(ran.stdout).unwrap();
    let mut said: Vec<&str> = said.lines().collect();
    let sum = said.pop().unwrap().to_owned();
    said.sort_unstable();
    let large = format!("differs 'copy/large': first difference at byte {}", 9 << 20);
    let mut wanted = vec![
        "differs 'copy/-dash': 3 bytes in the source, 12 in the copy",
        "differs 'copy/deep/er/plain': first difference at byte 2",
        "differs 'copy/empty': a directory in the source, a file in the copy",
        "differs 'copy/link': different link target",
        large.as_str(),
        "extra 'copy/more': a directory",
        "extra 'copy/more/than'",
        "missing 'copy/deep/er/\\xff\\xfe'",
    ];
    wanted.sort_unstable();
    assert_eq!(said, wanted);
    assert!(sum.contains("5 entries differ, 1 missing, 2 extra"), "{sum}");
    let quiet = verify(&scratch, &["-q", "source", "copy"]).expect(1);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
}

#[test]
fn attributes_are_compared_on_request_and_each_is_named() {
    let scratch = trees();
    let copy = scratch.join("copy");
    fs::set_permissions(copy.join("large"), fs::Permissions::from_mode(0o600)).unwrap();
    let old = FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    File::open(copy.join("deep")).unwrap().set_times(old).unwrap();
    // Replaces a hard link with a separate file of equal contents.
    fs::remove_file(copy.join("twin")).unwrap();
    run(Command::new("cp").arg("-p").args([copy.join("plain"), copy.join("twin")])).expect(0);
    let xattr = Command::new("setfattr")
        .args(["-n", "user.colour", "-v", "blue"])
        .arg(copy.join("-dash"))
        .status();
    verify(&scratch, &["source", "copy"]).expect(0);
    let ran = verify(&scratch, &["--attributes", "source", "copy"]).expect(1);
    let said = String::from_utf8_lossy(&ran.stdout);
    for wanted in
        ["'copy/large': different mode", "'copy/deep': different modification time", "hard links"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    if xattr.is_ok_and(|status| status.success()) {
        assert!(said.contains("'copy/-dash': different extended attributes"), "{said}");
    } else {
        skip("attributes_are_compared_on_request", "no extended attributes, or no setfattr");
    }
}

#[test]
fn the_operands_of_the_copy_are_those_of_the_comparison() {
    let scratch = Scratch::new();
    let source = scratch.folder("source");
    fs::write(source.join("f"), "x").unwrap();
    fs::write(scratch.folder("into").join("other"), "y").unwrap();
    let mut copy = thalweg();
    run(copy.args(["copy", "-a", "source", "into"]).current_dir(scratch.path())).expect(0);
    verify(&scratch, &["source", "into"]).expect(0);
    verify(&scratch, &["-t", "into", "source"]).expect(0);
    verify(&scratch, &["source/f", "into/source"]).expect(0);
    verify(&scratch, &["source/f", "into/source/f"]).expect(0);
    let itself = verify(&scratch, &["-T", "source", "into"]).expect(1);
    assert!(String::from_utf8_lossy(&itself.stdout).contains("missing 'into/f'"));
    // If `source` contains a directory `source`, then `into/source` may be a copy of this inner directory. verify then
    // compares with `into` itself.
    fs::create_dir(source.join("source")).unwrap();
    verify(&scratch, &["source", "into"]).expect(1);
    verify(&scratch, &["source", "into", "into"]).expect(1);
    verify(&scratch, &["source"]).expect(2);
    // A missing source does not prevent the comparison of the others.
    fs::write(scratch.join("into/f"), "x").unwrap();
    let gone = verify(&scratch, &["--json", "gone", "source/f", "into"]).expect(1);
    assert!(gone.stderr.contains("gone") && gone.stderr.contains("ENOENT"), "{}", gone.stderr);
    let sum = lines(&gone).pop().unwrap();
    assert_eq!((&sum["same"], &sum["errors"]), (&json!(1), &json!(1)));
}

#[test]
fn a_file_that_may_not_be_read_is_an_error_and_no_pass() {
    if !rustix::process::geteuid().is_root() {
        return skip("a_file_that_may_not_be_read_is_an_error_and_no_pass", "needs root");
    }
    let scratch = Scratch::public();
    for folder in ["source", "copy"] {
        fs::write(scratch.folder(folder).join("f"), "same").unwrap();
        fs::create_dir(scratch.join(folder).join("closed")).unwrap();
        open_to_all(&scratch.join(folder));
    }
    let as_nobody = |options: &[&str]| {
        let mut command = Command::new(scratch.binary());
        command.args(options).current_dir(scratch.path()).uid(65534).gid(65534);
        run(&mut command)
    };
    let manifest = run(Command::new("sha256sum").arg("f").current_dir(scratch.join("source")));
    fs::write(scratch.join("sums"), manifest.expect(0).stdout).unwrap();
    for (path, mode) in [("copy/f", 0o000), ("copy/closed", 0o000)] {
        fs::set_permissions(scratch.join(path), fs::Permissions::from_mode(mode)).unwrap();
        for words in [
            ["verify", "-q", "source", "copy"].as_slice(),
            &["verify", "-q", "--manifest", "sums", "copy"],
            &["manifest", "-o", "made", "copy"],
        ] {
            let ran = as_nobody(words).expect(1);
            assert!(ran.stderr.contains(path) && ran.stderr.contains("EACCES"), "{}", ran.stderr);
        }
        fs::set_permissions(scratch.join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(!scratch.join("made").exists(), "a manifest of a part has no name");
}

#[test]
fn a_tree_deeper_than_a_path_may_be_long_is_compared_with_few_descriptors() {
    let scratch = Scratch::new();
    let deep = "for n in $(seq 40); do d=$(printf 'x%.0s' $(seq 200)); mkdir $d; echo $n >f; cd $d; done; echo end >end";
    for folder in ["source", "copy"] {
        run(Command::new("bash").args(["-c", deep]).current_dir(scratch.folder(folder))).expect(0);
    }
    let verify = |code| {
        let mut command = Command::new("bash");
        let line = "ulimit -n 24; \"$T\" verify source copy && \"$T\" manifest -q -o sums source && \"$T\" verify --manifest sums copy";
        command.args(["-c", line]).env("T", env!("CARGO_BIN_EXE_thalweg"));
        run(command.current_dir(scratch.path())).expect(code)
    };
    verify(0);
    let change = "while cd x*; do :; done 2>/dev/null; echo End >end";
    run(Command::new("bash").args(["-c", change]).current_dir(scratch.join("copy"))).expect(0);
    let said = String::from_utf8(verify(1).stdout).unwrap();
    assert!(said.contains("/end': first difference at byte 0"), "{said}");
}

/// readdir(3) returns names in the order of the file system, such as the order of creation or of hashes.
#[test]
fn two_logs_of_the_same_findings_are_equal_whatever_the_order_of_directories_and_threads() {
    let scratch = Scratch::new();
    let mut names: Vec<String> = (0..400).map(|n| format!("{}/f{n}", n % 7)).collect();
    for side in ["source", "again"] {
        for name in &names {
            let path = scratch.join(side).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        names.reverse();
    }
    for n in 0..7 {
        fs::create_dir_all(scratch.join(&format!("copy/{n}"))).unwrap();
    }
    let log = |source: &str, words: &[&str]| {
        let ran = verify(&scratch, &[words, &[source, "copy"]].concat()).expect(1);
        let text = String::from_utf8(ran.stdout).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // Removes the last line, which contains the duration.
        lines[..lines.len() - 1].to_vec()
    };
    names.sort();
    let missing = names.iter().map(|name| format!("missing 'copy/{name}'")).collect::<Vec<_>>();
    for source in ["source", "again"] {
        for jobs in ["--jobs=1", "--jobs=4"] {
            assert_eq!(log(source, &[jobs]), missing, "{source} {jobs}");
        }
    }
    assert_eq!(log("source", &["--json", "--jobs=4"]), log("again", &["--json", "--jobs=3"]));
}

#[test]
fn an_empty_manifest_is_no_success_and_a_lost_manifest_is_an_error_in_json() {
    let scratch = Scratch::new();
    let line = "mkdir s; echo 1 >s/a; for text in '' '# comment\n'; do printf \"$text\" |
        $T verify --ignore-extra --manifest - s; echo $?; done";
    let ran = shell(scratch.path(), line).expect(0);
    ran.expect_said("the manifest is empty");
    assert_eq!(ran.stdout, b"1\n1\n");
    let ran = shell(scratch.path(), "$T copy --json --manifest none/m -r s d").expect(1);
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(answer["error"].as_str().is_some_and(|error| error.contains("none")), "{answer}");
}
