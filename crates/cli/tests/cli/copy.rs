//! Runs `thalweg copy`: flags, streams, messages, exit codes.

use crate::support;

use std::{
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Stdio,
};

use support::{Ran, Scratch, bytes};

/// The lock file of a profile. Processes lock it while they change the profile, and never remove it.
const LOCK: &str = ".profile.json.lock";

#[test]
fn a_file_goes_where_cp_would_put_it() {
    let scratch = Scratch::new();
    let data = bytes(300_001);
    scratch.file("from", &data);
    std::fs::create_dir(scratch.path("folder")).unwrap();
    let ran = scratch.run(&["copy", "from", "to"]).ended(0);
    assert_eq!((ran.text(), ran.err), (String::new(), String::new()));
    let ran = scratch.run(&["copy", "--progress=always", "from", "to"]).ended(0);
    assert!(ran.err.contains("1 file copied (293.0 KiB)"), "{}", ran.err);
    assert_eq!(ran.text(), "");
    scratch.run(&["copy", "-q", "from", "folder"]).ended(0);
    scratch.run(&["copy", "from", "to", "-t", "folder"]).ended(0);
    scratch.run(&["copy", "-T", "from", "exact"]).ended(0);
    for name in ["to", "folder/from", "folder/to", "exact"] {
        assert!(scratch.read(name) == data, "{name}");
    }
    assert_eq!(scratch.names(), ["exact", "folder", "from", "to"]);
}

#[test]
fn a_tree_is_copied_with_what_archive_promises() {
    let scratch = Scratch::new();
    scratch.file("tree/a", bytes(10));
    let deep = scratch.file("tree/sub/deep/b", bytes(100_000));
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("a", scratch.path("tree/link")).unwrap();
    std::fs::hard_link(scratch.path("tree/a"), scratch.path("tree/again")).unwrap();
    let refused = scratch.run(&["copy", "tree", "to"]).ended(1);
    assert!(refused.err.contains("is a directory (-r not specified)"), "{}", refused.err);
    scratch.run(&["copy", "-a", "--jobs", "2", "tree", "to"]).ended(0);
    let same = scratch.shell("diff -r tree to").ended(0);
    assert_eq!(same.text(), "");
    let copy = std::fs::metadata(scratch.path("to/sub/deep/b")).unwrap();
    assert_eq!(copy.mode() & 0o7777, 0o640);
    assert_eq!(copy.mtime_nsec(), std::fs::metadata(&deep).unwrap().mtime_nsec());
    assert_eq!(std::fs::metadata(scratch.path("to/a")).unwrap().nlink(), 2);
    assert!(scratch.path("to/link").is_symlink());
}

#[test]
fn what_is_there_is_treated_as_the_flags_say() {
    let scratch = Scratch::new();
    scratch.file("new", "new");
    let old = || scratch.file("old", "old");
    old();
    scratch.run(&["copy", "-n", "new", "old"]).ended(0);
    assert_eq!(scratch.read("old"), b"old");
    let asked = scratch.feed(&["copy", "-i", "new", "old"], b"n\n").ended(1);
    assert!(asked.err.contains("overwrite 'old'?"), "{}", asked.err);
    assert_eq!(scratch.read("old"), b"old");
    scratch.feed(&["copy", "-i", "new", "old"], b"y\n").ended(0);
    assert_eq!(scratch.read("old"), b"new");
    old();
    let told = scratch.run(&["copy", "-v", "--backup=numbered", "new", "old"]).ended(0);
    assert!(told.text().contains("'new' -> 'old' (backup: 'old.~1~')"), "{}", told.text());
    assert_eq!(scratch.read("old.~1~"), b"old");
    let dry = scratch.run(&["copy", "--dry-run", "new", "fresh"]).ended(0);
    assert!(dry.text().contains("would copy 'new' -> 'fresh'"), "{}", dry.text());
    assert!(!scratch.path("fresh").exists());
}

#[test]
fn dashes_are_standard_input_and_output() {
    let scratch = Scratch::new();
    let data = bytes(400_000);
    scratch.file("from", &data);
    assert!(scratch.run(&["copy", "from", "-"]).ended(0).out == data);
    assert!(scratch.feed(&["copy", "-", "-"], &data).ended(0).out == data);
    scratch.feed(&["copy", "-q", "-", "piped"], &data).ended(0);
    assert!(scratch.read("piped") == data);
    let line = "umask 022; { $T copy -q - named; cat > rest; } < from; stat -c %a named";
    assert_eq!(scratch.shell(line).ended(0).text(), "644\n");
    assert!(scratch.read("named") == data && scratch.read("rest").is_empty());
    assert_eq!(scratch.shell("umask 027; echo x | $T copy -q - m; stat -c %a m").text(), "640\n");
    let json = scratch.run(&["copy", "--json", "from", "-"]).ended(0);
    assert!(json.out == data && json.err_json()["bytes"] == 400_000);
    for args in [
        ["copy", "from", "from", "-"].as_slice(),
        &["copy", "--verify", "from", "-"],
        &["copy", "-", "from", "to"],
        &["copy", "-", "."],
        &["copy", "-i", "-", "to"],
    ] {
        scratch.run(args).ended(2);
    }
}

#[test]
fn json_is_one_object_with_what_was_verified() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(200_000));
    let ran = scratch.run(&["copy", "--json", "--verify", "-v", "from", "to"]).ended(0);
    let json = ran.json();
    assert_eq!((&json["bytes"], &json["files"]), (&200_000.into(), &1.into()));
    let verified = serde_json::json!({
        "asked": true, "same": 1, "differ": 0, "again": 0, "not_read": 0, "bytes": 200_000,
        "from_memory": 0, "hash": "blake3",
    });
    assert_eq!((&json["verified"], &json["schema"]), (&verified, &1.into()));
    let unasked = scratch.run(&["copy", "--json", "from", "to"]).ended(0).json();
    assert_eq!(unasked["verified"]["asked"], false);
    let failed = scratch.run(&["copy", "--json", "gone", "to"]).ended(1).json();
    assert!(failed["error"].as_str().unwrap().contains("ENOENT"));
}

#[test]
fn tuning_measures_moves_and_shows_why() {
    let scratch = Scratch::new();
    let data = bytes(2 << 20);
    scratch.file("from", &data);
    let tune = |args: &[&str]| {
        let mut command = scratch.thalweg([&["copy", "--tune"], args].concat());
        let output = command.env("THALWEG_PROFILE", scratch.path("profile.json")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = tune(&["from", "to"]);
    assert!(scratch.read("to") == data);
    assert!(text.starts_with("1 file copied") && text.contains("measured in"), "{text}");
    // The method that the table marks as chosen must be the method that moved the bytes.
    let (_, used) = text.lines().next().unwrap().split_once(" by ").unwrap();
    let used = used.split([' ', ',', '\n']).next().unwrap();
    let chosen = text.lines().find_map(|line| line.strip_prefix("* "));
    assert!(chosen.is_some_and(|line| line.starts_with(used)), "{text}");
    assert_eq!(scratch.names(), [LOCK, "from", "profile.json", "to"]);
    // If other processes disturbed the measurement, thalweg may not save it.
    let kept = ["saved for later copies", "nothing saved for later copies"];
    assert!(text.lines().any(|line| kept.iter().any(|words| line.starts_with(words))), "{text}");
    let json: serde_json::Value = serde_json::from_str(&tune(&["--json", "from", "to"])).unwrap();
    let arms = json["tune"]["arms"].as_array().unwrap();
    assert!(arms.iter().any(|arm| arm["name"].as_str().unwrap().starts_with("cp")));
    assert!(arms.iter().all(|arm| arm["ratio_to_cp"].as_f64().is_none_or(|ratio| ratio > 0.0)));
    // The plan now uses the saved measurement.
    let mut plan = scratch.thalweg(["plan", "-v", "from", "to"]);
    let output = plan.env("THALWEG_PROFILE", scratch.path("profile.json")).output().unwrap();
    let plan = String::from_utf8(output.stdout).unwrap();
    let profile: serde_json::Value = serde_json::from_slice(&scratch.read("profile.json")).unwrap();
    let is_kept = profile["cells"].as_array().is_some_and(|cells| !cells.is_empty());
    assert!(plan.contains("chosen") && plan.contains("1 session") == is_kept, "{plan}");
}

#[test]
fn a_folder_without_r_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    scratch.file("folder/from", bytes(1 << 20));
    scratch.file("from", bytes(1 << 20));
    let tune = |args: &[&str]| {
        let mut command = scratch.thalweg([&["copy", "--tune", "--json"], args].concat());
        command.env("THALWEG_PROFILE", scratch.path("profile.json"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Ran::of_child(child.expect("it starts"))
    };
    let refused = tune(&["folder", "to"]).ended(1).json();
    assert!(
        refused["error"].as_str().unwrap().contains("is a directory (-r not specified)"),
        "{refused}"
    );
    assert!(refused["tune"].is_null(), "{refused}");
    assert_eq!(scratch.names(), ["folder", "from"], "no profile: nothing was measured");
    // If a file and a directory are given, only the file is measured and copied.
    std::fs::create_dir(scratch.path("into")).unwrap();
    let both = tune(&["folder", "from", "into"]).ended(1);
    assert!(both.json()["tune"]["arms"].is_array(), "{}", both.err);
    assert!(scratch.read("into/from") == scratch.read("from"));
    assert_eq!(scratch.names(), [LOCK, "folder", "from", "into", "profile.json"]);
}

#[test]
fn a_tuned_tree_gets_one_answer_and_says_what_is_kept_of_it() {
    let scratch = Scratch::new();
    for n in 0..30 {
        scratch.file(&format!("tree/{n}"), bytes(1000 + n));
    }
    let text = scratch.run(&["copy", "-r", "--tune", "tree", "to"]).ended(0).text();
    let threads = text.lines().find_map(|line| line.strip_prefix("threads: ")).expect("threads");
    let number: String = threads.chars().take_while(char::is_ascii_digit).collect();
    let marked: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("* ")).collect();
    assert!(marked.iter().any(|line| line.starts_with(&format!("{number} thread"))), "{text}");
    // No file is large enough to be measured by itself, and copying this small tree takes less time than measuring it.
    assert!(text.contains("nothing saved for later copies"), "{text}");
    assert!(text.contains("--tune does not pay off for such short copies"), "{text}");
}

#[test]
fn problems_are_said_once_with_what_to_do_next() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(1000));
    let gone = scratch.run(&["copy", "gone", "to"]).ended(1);
    assert_eq!(
        gone.err,
        "thalweg: cannot stat 'gone': no such file or directory (newfstatat: ENOENT)\n"
    );
    scratch.run(&["copy", "from"]).ended(2);
    scratch.run(&["copy", "from", "no/such/place"]).ended(1);
    let same = scratch.run(&["copy", "from", "from"]).ended(1);
    assert!(same.err.contains("same file"), "{}", same.err);
    let full = scratch.run(&["copy", "from", "/dev/full"]).ended(1);
    let words = "thalweg: cannot write '/dev/full': no space left on device (";
    assert!(full.err.contains(words), "{}", full.err);
    assert!(full.err.contains(": ENOSPC)\nhint: free some space there"), "{}", full.err);
    let is_ours = |line: &str| line.starts_with("thalweg: ") || line.starts_with("hint: ");
    assert!(full.err.lines().all(is_ours), "{}", full.err);
    scratch.run(&["copy", "--method", "teleport", "from", "to"]).ended(2);
    assert_eq!(scratch.names(), ["from"]);
}

#[test]
fn an_interrupt_at_the_question_is_an_answer() {
    let scratch = Scratch::new();
    scratch.file("new", "new");
    scratch.file("old", "old");
    let mut command = scratch.thalweg(["copy", "-i", "new", "old"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Standard input stays open, and receives no answer.
    let silent = child.stdin.take();
    let mut asked = [0];
    while asked != *b"?" {
        child.stderr.as_mut().unwrap().read_exact(&mut asked).unwrap();
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = Ran::of_child(child).ended(130);
    assert!(ran.err.contains("interrupted") && !ran.err.contains("does not return"), "{}", ran.err);
    assert_eq!(scratch.read("old"), b"old");
    drop(silent);
}

#[test]
fn the_environment_sets_long_options() {
    let scratch = Scratch::new();
    scratch.file("from", "x");
    let mut command = scratch.thalweg(["copy", "from", "to"]);
    let output = command.env("THALWEG_JSON", "1").env("THALWEG_VERIFY", "xxh3").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["verified"]["same"], &json["verified"]["hash"]), (&1.into(), &"xxh3".into()));
    let mut command = scratch.thalweg(["copy", "from", "to"]);
    let output = command.env("THALWEG_METHOD", "teleport").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_size_limit_is_an_error_that_leaves_nothing() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(1 << 20));
    for line in ["$T copy from to", "$T copy - to < from", "$T copy --inplace from to"] {
        let ran = scratch.shell(&format!("ulimit -f 100; {line}")).ended(1);
        assert!(ran.err.contains("EFBIG") && ran.err.contains("ulimit -f"), "{line}: {}", ran.err);
        assert!(line.contains("inplace") || !scratch.path("to").exists(), "{line}");
    }
    let ran = scratch.shell("ulimit -f 100; $T pipe < from > to").ended(1);
    assert!(ran.err.contains("EFBIG"), "{}", ran.err);
}
