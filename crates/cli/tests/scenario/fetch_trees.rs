//! `thalweg fetch -r`: killed, limited, and from servers that do not list directories.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread, time::Duration};

use crate::support::{
    Running, Scratch, Served, bytes, names, run, run::wrapped, schema::faults, skip::has_tools,
    thalweg,
};

/// Makes a tree of small files and one large file, which is fetched separately.
pub fn shared(scratch: &Scratch) -> std::path::PathBuf {
    let root = scratch.folder("shared");
    for n in 0..200 {
        let folder = root.join(format!("{}", n % 5));
        fs::create_dir_all(&folder).unwrap();
        bytes::write(&folder.join(format!("f{n}")), n, n * 100);
    }
    bytes::write(&root.join("large"), 1, 20_000_000);
    symlink("large", root.join("link")).unwrap();
    root
}

#[track_caller]
pub fn are_equal(one: &Path, other: &Path) {
    run(Command::new("diff").arg("-r").arg("--no-dereference").args([one, other])).expect(0);
    run(thalweg().args(["verify", "-T", "--attributes"]).args([one, other])).expect(0);
}

pub fn fetch(served: &Served, to: &Path, words: &[&str]) -> Command {
    let mut command = thalweg();
    command.args(["fetch", "-r", "--json"]).args(words).arg(&served.url).arg(to);
    command
}

#[test]
fn after_a_kill_the_same_command_brings_the_rest_of_a_tree() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let served = Served::on(&root);
    let place = scratch.folder("place");
    let dst = place.join("dst");
    let rounds = std::env::var("THALWEG_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let all = 20_000_000 + 100 * (0..200).sum::<u64>();
    let mut resumed = 0;
    for round in 0..rounds {
        let mut running = Running::start(&mut fetch(&served, &dst, &["--limit", "16M"]));
        while !place.join(".dst.thalweg-part").exists() && !running.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100 + 97 * round % 350));
        // The fetch may have ended already.
        drop(running.child().kill());
        drop(running.finish());
        let ended = dst.exists();
        if ended {
            are_equal(&root, &dst);
        }
        let second = run(&mut fetch(&served, &dst, &[])).expect(0);
        are_equal(&root, &dst);
        assert_eq!(names(&place), ["dst"], "round {round}");
        let hidden = run(Command::new("find").arg(&dst).args(["-name", ".*thalweg*"])).expect(0);
        assert!(hidden.stdout.is_empty(), "round {round}");
        let moved = second.json()["bytes"].as_u64().unwrap();
        resumed += usize::from(!ended && moved < all);
        fs::remove_dir_all(&dst).unwrap();
    }
    assert!(resumed > 0, "no kill came while it moved");
}

#[test]
fn a_tree_is_fetched_again_only_where_it_differs_and_the_answer_is_as_documented() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let served = Served::on(&root);
    let dst = scratch.join("dst");
    let schema = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/schemas/answer.json"
    ));
    let schema = serde_json::from_str(&schema.unwrap()).unwrap();
    for (moved, unchanged) in [(201, 0), (0, 201)] {
        let json = run(&mut fetch(&served, &dst, &[])).expect(0).json();
        assert_eq!(faults(&json, &schema), Vec::<String>::new(), "{json}");
        assert_eq!(
            (&json["files"], &json["tree"]["unchanged"]),
            (&moved.into(), &unchanged.into())
        );
        are_equal(&root, &dst);
    }
    fs::write(root.join("0/f0"), "longer").unwrap();
    let said = run(thalweg().args(["fetch", "-r", &served.url]).arg(&dst)).expect(0);
    said.expect_said("(6 B)");
    said.expect_said("200 unchanged");
}

#[test]
fn a_limit_on_file_sizes_leaves_one_file_out_and_says_so() {
    if !has_tools("a_limit_on_file_sizes_leaves_one_file_out", &["prlimit"]) {
        return;
    }
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let served = Served::on(&root);
    let dst = scratch.join("dst");
    let mut limited = wrapped(&["prlimit", "--fsize=1000000", "--"]);
    let ran = run(limited.args(["fetch", "-r", &served.url]).arg(&dst)).expect(1);
    ran.expect_said("dst/large");
    ran.expect_said("1 entry failed");
    assert!(!dst.join("large").exists() && dst.join("4/f199").exists());
    let second = run(&mut fetch(&served, &dst, &[])).expect(0).json();
    // The bytes that the first run received are not sent again.
    assert_eq!(second["bytes"], 19_000_000);
    are_equal(&root, &dst);
}

#[test]
fn options_that_do_not_fit_trees_are_refused_and_other_servers_are_reported() {
    let scratch = Scratch::new();
    let root = shared(&scratch);
    let served = Served::on(&root);
    let fetch = |words: &[&str]| {
        run(thalweg().args(["fetch", "-r"]).args(words).current_dir(scratch.path()))
    };
    let url = &served.url;
    fetch(&[url]).expect(2).expect_said("no name");
    fetch(&[url, "-"]).expect(2).expect_said("?tar");
    fetch(&[url, url, "x"]).expect(2).expect_said("single URL");
    fetch(&[url, "x", "--verify"]).expect(4).expect_said("start the server with --hash");
    run(thalweg().args(["fetch", "--hash", url]).arg(scratch.path())).expect(2);
    fetch(&[url, "none/x"]).expect(2).expect_said("no such directory");
    fetch(&[&format!("{url}none/"), "x"]).expect(4).expect_said("wget -r");
    fetch(&[&format!("{url}large"), "x"]).expect(4).expect_said("wget -r");
    fetch(&[&format!("{url}3")]).expect(0);
    are_equal(&root.join("3"), &scratch.join("3"));
    fetch(&["--hash", &format!("{url}3")]).expect(4).expect_said("sends no hashes");
    are_equal(&root.join("3"), &scratch.join("3"));
}
