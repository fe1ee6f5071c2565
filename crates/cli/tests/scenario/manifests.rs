//! `thalweg manifest` and `thalweg verify --manifest`, compared with the tools that use the same format.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    process::Command,
};

use crate::support::{Scratch, bytes, run, run::Ran, shell, skip, thalweg};

/// A tool, its options for the hash, thalweg's name of this hash, and file names that the tool can list.
struct Tool {
    program: &'static str,
    options: &'static [&'static str],
    hash: &'static str,
    names: &'static [&'static [u8]],
}

const TOOLS: [Tool; 3] = [
    Tool {
        program: "sha256sum",
        options: &[],
        hash: "sha256",
        names: &[b"new\nline", b"back\\slash", b"cr\r", b"\\\n", b"\xff\xfe"],
    },
    // b3sum fails on names that are not valid UTF-8.
    Tool {
        program: "b3sum",
        options: &[],
        hash: "blake3",
        names: &[b"new\nline", b"back\\slash", b"cr\r", b"\\\n"],
    },
    // xxhsum before 0.8.2 does not escape names.
    Tool {
        program: "xxhsum",
        options: &["-H2"],
        hash: "xxh3",
        names: &[b"back\\slash", b"cr\r", b"\xff\xfe"],
    },
];

/// Makes a tree with names that all tools can list, and with these names.
fn tree(names: &[&[u8]]) -> Scratch {
    let scratch = Scratch::new();
    let folder = scratch.folder("tree");
    fs::create_dir_all(folder.join("sub/folder")).unwrap();
    let common: [&[u8]; 5] = [b"plain", b" lead", b"*star", b"paren (x) = y", b"#hash"];
    for (n, name) in common.iter().chain(names).enumerate() {
        let name = OsStr::from_bytes(name);
        fs::write(folder.join(name), format!("file {n}")).unwrap();
        fs::write(folder.join("sub/folder").join(name), format!("below {n}")).unwrap();
    }
    fs::write(folder.join("empty"), "").unwrap();
    // Several threads hash a file of this size. It is not a multiple of a block.
    bytes::write(&folder.join("large"), 1, (17 << 20) + 12_345);
    symlink("plain", folder.join("link")).unwrap();
    scratch
}

fn thalweg_in(scratch: &Scratch, words: &[&str]) -> Ran {
    let mut command = thalweg();
    run(command.args(words).current_dir(scratch.path()))
}

fn is_there(program: &str, test: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        skip(test, &format!("{program} is not installed"));
    }
    there
}

#[test]
fn the_tools_accept_our_lines_and_we_accept_theirs() {
    for Tool { program, options, hash, names } in TOOLS {
        if !is_there(program, "the_tools_accept_our_lines_and_we_accept_theirs") {
            continue;
        }
        let scratch = tree(names);
        let made =
            thalweg_in(&scratch, &["manifest", "--hash", hash, "-o", "ours", "tree"]).expect(0);
        assert!(
            String::from_utf8_lossy(&made.stdout).contains("1 link or special file not listed")
        );
        let tool = |more: &str| {
            let mut command = Command::new("bash");
            let line = format!("{program} {} {more}", options.join(" "));
            run(command.args(["-c", &line]).current_dir(scratch.join("tree")))
        };
        let accepted = tool("-c ../ours").expect(0);
        let lines = String::from_utf8_lossy(&accepted.stdout).matches(": OK").count();
        assert_eq!(lines, 2 * (5 + names.len()) + 2, "{program}");
        let theirs = tool("-- * sub/folder/* 2>/dev/null");
        fs::write(scratch.join("theirs"), theirs.stdout).unwrap();
        // The tool follows the symbolic link, so it lists one file more than thalweg.
        let ran = thalweg_in(&scratch, &["verify", "--manifest", "theirs", "tree"]).expect(0);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(said.contains(" equal (") && !said.contains("extra '"), "{program}: {said}");
        // Each line of thalweg's manifests shows the hash function, so `--hash` is not needed.
        thalweg_in(&scratch, &["verify", "--manifest", "ours", "tree"]).expect(0);
    }
}

#[test]
fn lines_with_a_tag_are_read() {
    let scratch = tree(&[b"new\nline"]);
    for line in ["sha256sum --tag", "xxhsum -H2 --tag"] {
        if !is_there(line.split(' ').next().unwrap(), "lines_with_a_tag_are_read") {
            continue;
        }
        let tagged =
            format!("find . -name '*l*' -type f ! -name 'new*' -exec {line} {{}} + 2>/dev/null");
        let tagged =
            run(Command::new("bash").args(["-c", &tagged]).current_dir(scratch.join("tree")));
        fs::write(scratch.join("tagged"), tagged.expect(0).stdout).unwrap();
        let words = ["verify", "--ignore-extra", "--manifest", "tagged", "tree"];
        let said = thalweg_in(&scratch, &words).expect(0).stdout;
        assert!(!String::from_utf8_lossy(&said).starts_with('0'));
    }
}

#[test]
fn carriage_returns_at_the_ends_of_all_names_are_not_line_ends() {
    let scratch = Scratch::new();
    let folder = scratch.folder("tree");
    for hash in ["sha256", "blake3", "xxh3"] {
        for names in [&["a\r", "b\r"][..], &["\r"], &["a\r", "\r"]] {
            fs::remove_dir_all(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
            for name in names {
                fs::write(folder.join(name), name).unwrap();
            }
            thalweg_in(&scratch, &["manifest", "--hash", hash, "-o", "list", "tree"]).expect(0);
            thalweg_in(&scratch, &["verify", "--manifest", "list", "tree"]).expect(0);
            // A missing file is still reported.
            fs::remove_file(folder.join(names[0])).unwrap();
            thalweg_in(&scratch, &["verify", "--manifest", "list", "tree"]).expect(1);
        }
        // Other tools may write manifests with CRLF line ends.
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), "").unwrap();
        let list = thalweg_in(&scratch, &["manifest", "--hash", hash, "tree"]).stdout;
        let list = String::from_utf8(list).unwrap().replace('\n', "\r\n");
        fs::write(scratch.join("list"), list).unwrap();
        thalweg_in(&scratch, &["verify", "--manifest", "list", "tree"]).expect(0);
    }
}

#[test]
fn every_hash_is_the_same_on_every_number_of_threads_and_sorted() {
    let scratch = tree(&[b"\xff"]);
    for hash in ["sha256", "blake3", "xxh3"] {
        let make = |jobs| {
            thalweg_in(&scratch, &["manifest", "--hash", hash, "--jobs", jobs, "tree"]).stdout
        };
        let (one, many) = (make("1"), make("5"));
        assert_eq!(one, many, "{hash}");
        let lines: Vec<&[u8]> = one.split(|byte| *byte == b'\n').collect();
        let digits = if hash == "xxh3" { 32 } else { 64 };
        let names: Vec<&[u8]> = lines.iter().filter_map(|line| line.get(digits + 2..)).collect();
        assert!(names.is_sorted() && names.len() == 14, "{hash}");
    }
}

#[test]
fn a_changed_a_missing_and_an_extra_file_and_a_bad_line_are_named() {
    let scratch = tree(&[b"new\nline"]);
    thalweg_in(&scratch, &["manifest", "-o", "sums", "tree"]).expect(0);
    let at = |name: &str| scratch.join("tree").join(name);
    for name in ["plain", "large"] {
        let file = fs::File::options().write(true).open(at(name)).unwrap();
        file.write_all_at(b"X", 3).unwrap();
    }
    fs::remove_file(at("empty")).unwrap();
    fs::remove_file(at("new\nline")).unwrap();
    fs::create_dir(at("new\nline")).unwrap();
    fs::write(at("more"), "").unwrap();
    let mut sums = fs::read(scratch.join("sums")).unwrap();
    sums.splice(0..0, *b"this is no line\n");
    fs::write(scratch.join("sums"), sums).unwrap();
    let ran = thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree"]).expect(1);
    let said = String::from_utf8(ran.stdout).unwrap();
    for wanted in [
        "differs 'tree/plain': hash differs from line ",
        "differs 'tree/large': hash differs from line ",
        "differs 'tree/new\\nline': a file in the source, a directory in the copy",
        "missing 'tree/empty'",
        "extra 'tree/more'",
        "3 entries differ, 1 missing, 1 extra",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(ran.stderr.contains("line 1 of the manifest"), "{}", ran.stderr);
    let words = ["verify", "--ignore-extra", "--manifest", "sums", "tree"];
    let said = thalweg_in(&scratch, &words).expect(1).stdout;
    assert!(!String::from_utf8_lossy(&said).contains("extra"));
}

#[test]
fn a_manifest_in_the_tree_that_it_lists_is_no_part_of_it() {
    let scratch = tree(&[]);
    for _ in 0..2 {
        thalweg_in(&scratch, &["manifest", "-o", "tree/SUMS", "tree"]).expect(0);
        let sums = fs::read(scratch.join("tree/SUMS")).unwrap();
        assert!(!sums.windows(4).any(|four| four == b"SUMS"));
        thalweg_in(&scratch, &["verify", "--manifest", "tree/SUMS", "tree"]).expect(0);
    }
}

#[test]
fn an_empty_manifest_is_that_of_an_empty_folder() {
    let scratch = Scratch::new();
    scratch.folder("tree");
    fs::write(scratch.join("sums"), "").unwrap();
    assert!(thalweg_in(&scratch, &["manifest", "tree"]).expect(0).stdout.is_empty());
    thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree"]).expect(0);
    fs::write(scratch.join("tree/f"), "").unwrap();
    thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree"]).expect(1);
    thalweg_in(&scratch, &["verify", "--manifest", "gone", "tree"]).expect(1);
    thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree", "tree"]).expect(2);
}

#[test]
fn a_manifest_never_replaces_the_file_that_it_lists() {
    let scratch = Scratch::new();
    for name in ["file", "file.b3.attributes"] {
        fs::write(scratch.join(name), name).unwrap();
    }
    symlink("file", scratch.join("link")).unwrap();
    for words in [
        ["-o", "file", "file"],
        ["-o", "link", "file"],
        ["-o", "file", "link"],
        ["--attributes", "-ofile.b3", "file.b3.attributes"],
    ] {
        let before =
            ["file", "file.b3.attributes"].map(|name| fs::read(scratch.join(name)).unwrap());
        let ran = thalweg_in(&scratch, &[&["manifest"][..], &words].concat()).expect(2);
        ran.expect_said("the manifest would replace the listed file");
        let after =
            ["file", "file.b3.attributes"].map(|name| fs::read(scratch.join(name)).unwrap());
        assert_eq!(after, before, "{words:?}");
    }
}

#[test]
fn a_single_file_has_a_manifest_of_one_line() {
    let scratch = tree(&[]);
    thalweg_in(&scratch, &["manifest", "-o", "sums", "tree/plain"]).expect(0);
    assert!(fs::read(scratch.join("sums")).unwrap().ends_with(b"  plain\n"));
    thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree/plain"]).expect(0);
    let ran = thalweg_in(&scratch, &["verify", "--manifest", "sums", "tree/large"]).expect(1);
    assert!(String::from_utf8_lossy(&ran.stdout).contains("differs 'tree/large'"));
}

#[test]
fn a_copy_writes_the_manifest_of_what_is_there_now() {
    let scratch = tree(&[b"new\nline", b"\xff"]);
    fs::hard_link(scratch.join("tree/plain"), scratch.join("tree/twin")).unwrap();
    let copy = ["copy", "-a", "--manifest", "sums", "tree", "copy"];
    thalweg_in(&scratch, &copy).expect(0);
    let whole = thalweg_in(&scratch, &["manifest", "tree"]).expect(0).stdout;
    assert_eq!(fs::read(scratch.join("sums")).unwrap(), whole);
    thalweg_in(&scratch, &["verify", "--manifest", "sums", "copy"]).expect(0);
    // For a copy into an existing directory, the names begin with that of the source. Skipped files are listed, too.
    for _ in 0..2 {
        let again = ["copy", "-a", "-u", "--manifest", "more", "--manifest-hash=sha256"];
        thalweg_in(&scratch, &[&again[..], &["tree", "copy"]].concat()).expect(0);
        let more = fs::read(scratch.join("more")).unwrap();
        let twin = b"  tree/twin\n";
        assert!(more.windows(twin.len()).any(|part| part == twin));
        let words = ["verify", "--ignore-extra", "--manifest", "more", "copy"];
        thalweg_in(&scratch, &words).expect(0);
    }
    thalweg_in(&scratch, &["copy", "--manifest", "one", "tree/plain", "file"]).expect(0);
    assert!(fs::read(scratch.join("one")).unwrap().ends_with(b"  file\n"));
    let failed = ["copy", "--manifest", "none", "tree/plain", "gone", "copy"];
    thalweg_in(&scratch, &failed).expect(1);
    assert!(!scratch.join("none").exists());
}

#[test]
fn a_manifest_never_takes_the_place_of_what_it_lists() {
    let scratch = Scratch::new();
    let setup = "mkdir s; echo f >s/f; echo g >s/g";
    shell(scratch.path(), setup).expect(0);
    for (line, code) in [
        ("$T copy --manifest s/f s/f s/g . ", 1),
        ("$T copy -r --manifest s/f s new", 1),
        ("ln -s s link; $T copy -rL --manifest ./link/f s/ new", 1),
        ("$T copy -rs --manifest s/f $PWD/s links", 1),
        ("$T copy -rn --manifest s/f s/. new", 1),
        ("$T copy --manifest z s/g z", 1),
        ("$T copy -aT --manifest d/f s d", 1),
        ("$T copy -aT --manifest d/f s d", 1),
    ] {
        shell(scratch.path(), line).expect(code);
    }
    let ran = shell(scratch.path(), "$T copy -r --manifest s/f s newer").expect(1);
    ran.expect_said("'s/f': the manifest would overwrite a source");
    // An excluded file is not a source of the copy, so the manifest may overwrite it.
    shell(scratch.path(), "echo >s/note; $T copy -r --exclude /note --manifest s/note s left")
        .expect(0);
    for (name, bytes) in [("s/f", "f\n"), ("z", "g\n"), ("d/f", "f\n"), ("newer/f", "f\n")] {
        assert_eq!(fs::read_to_string(scratch.join(name)).unwrap(), bytes, "{name}");
    }
    // The manifest replaces that of an earlier run.
    for _ in 0..2 {
        shell(scratch.path(), "$T copy -aT --manifest d/m s d").expect(0);
        shell(scratch.path(), "$T verify --manifest d/m d").expect(0);
    }
}

#[test]
fn a_second_file_says_what_a_line_of_a_hash_has_no_room_for() {
    let setup = "umask 022; mkdir -p s/sub; echo f >s/f; ln s/f s/sub/g; ln -s f 's/a link'; mkfifo s/p; mkdir s/empty
        touch -h -d @1000 s/f 's/a link' s/p s/empty s/sub; cp -a s d";
    let manifest = "$T manifest --attributes -o m s && cp -a m m.attributes s && \
        { ! command -v b3sum >/dev/null || (cd s && b3sum --quiet -c ../m); }; rm s/m*; test -s m -a -s m.attributes";
    for (change, finding) in [
        ("true", ""),
        ("chmod 600 d/f", "different mode"),
        ("touch d/sub", "differs 'd/sub': different modification time"),
        ("rm d/sub/g; cp -p d/f d/sub/g; touch -d @1000 d/sub", "different hard links"),
        ("ln -sfn elsewhere 'd/a link'", "different link target"),
        ("rmdir d/empty", "missing 'd/empty': a directory"),
        ("rm d/p; echo >d/p", "a FIFO in the source, a file in the copy"),
        ("mkdir d/more", "extra 'd/more': a directory"),
        ("chown 5 d/f", "different owner"),
        ("chgrp -h 5 'd/a link'", "different group"),
        ("setfattr -n user.k -v v d/f || chmod 600 d/f", "different "),
        ("rm d/f", "missing 'd/f'"),
    ] {
        let scratch = Scratch::new();
        shell(scratch.path(), setup).expect(0);
        shell(scratch.path(), manifest).expect(0);
        shell(scratch.path(), change);
        let code = i32::from(!finding.is_empty());
        let ran = shell(scratch.path(), "$T verify --manifest m --attributes d").expect(code);
        assert!(String::from_utf8_lossy(&ran.stdout).contains(finding), "{change}: {}", ran.said());
    }
    let scratch = Scratch::new();
    shell(scratch.path(), setup).expect(0);
    // A manifest inside the tree does not list itself or its attributes, not even when it exists already.
    for _ in 0..2 {
        shell(scratch.path(), "$T manifest --attributes -o s/m s").expect(0);
        shell(scratch.path(), "$T verify --manifest s/m --attributes s").expect(0);
    }
    shell(scratch.path(), "$T manifest --attributes s").expect(2);
    shell(scratch.path(), "sed -i '$d' s/m.attributes; $T verify --manifest s/m --attributes s")
        .expect(1);
    shell(scratch.path(), "$T verify --manifest - --attributes s <s/m").expect(2);
}
