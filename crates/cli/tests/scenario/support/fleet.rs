//! Trees that several ranks of `copy --shard` copy, and their comparison by `diff`, `find` and `sha256sum`, without
//! code of thalweg.

use serde_json::Value;
use std::{fs, path::Path, process::Command, thread, time::Duration};

use super::{Running, bytes, names, run, thalweg};

pub const SHARD: &str = "--shard-size=256K";

/// Makes a tree of 10 MiB in `tree`.
pub fn plant(place: &Path) {
    plant_some(place, 4, 2 << 20);
}

/// Makes small files, files of several tasks, a file with a hole, and entries that are in no task.
pub fn plant_some(place: &Path, folders: u64, large: u64) {
    let tree = place.join("tree");
    fs::create_dir(&tree).unwrap();
    for folder in 0..folders {
        let path = tree.join(format!("folder-{folder}/deeper"));
        fs::create_dir_all(&path).unwrap();
        for n in 0..30 {
            bytes::write(&path.join(n.to_string()), folder * 100 + n, n * 700);
        }
        bytes::write(&path.join("large"), folder * 100 + 99, large + folder);
    }
    let holed = fs::File::create(tree.join("holed")).unwrap();
    holed.set_len(4 << 20).unwrap();
    bytes::write_at(&tree.join("holed"), 7, 3 << 20, 5000);
    fs::hard_link(tree.join("folder-0/deeper/5"), tree.join("second name")).unwrap();
    std::os::unix::fs::symlink("folder-1", tree.join("link")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
}

/// Returns the command of a rank that copies `tree` to `copy`.
pub fn rank(place: &Path, rank: u64, size: u64, options: &[&str]) -> Command {
    let mut command = thalweg();
    command.args(["copy", "-a", "--json", SHARD, "--shard", &format!("{rank}/{size}")]);
    command.args(options).args(["tree", "copy"]).current_dir(place);
    command
}

/// Runs this number of ranks to their ends, and returns their JSON objects.
#[track_caller]
pub fn fleet(place: &Path, size: u64, options: &[&str]) -> Vec<Value> {
    let all: Vec<_> =
        (0..size).map(|n| Running::start(&mut rank(place, n, size, options))).collect();
    all.into_iter().map(|one| one.finish().expect(0).json()).collect()
}

/// Returns every file below a directory with its hash, by sha256sum.
pub fn manifest(folder: &Path) -> String {
    let line = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
    let ran = run(Command::new("bash").args(["-c", line]).current_dir(folder)).expect(0);
    String::from_utf8(ran.stdout).unwrap()
}

/// Returns every entry below a directory with its kind, mode, time and size, by find.
pub fn listing(folder: &Path) -> String {
    let line = r"find . -printf '%p %y %m %T@ %n %l %s\n' | LC_ALL=C sort";
    let ran = run(Command::new("bash").args(["-c", line]).current_dir(folder)).expect(0);
    // Removes the sizes of directories, which depend on the file system.
    let text = String::from_utf8(ran.stdout).unwrap();
    let cut = |line: &str| match line.split(' ').nth(1) {
        Some("d") => line.rsplit_once(' ').map_or("", |(head, _)| head).to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

/// Checks that diff, sha256sum and find report two trees as equal.
#[track_caller]
pub fn expect_same(tree: &Path, copy: &Path) {
    run(Command::new("diff").args(["-r", "--no-dereference"]).args([tree, copy])).expect(0);
    assert_eq!(manifest(tree), manifest(copy));
    assert_eq!(listing(tree), listing(copy));
}

#[track_caller]
pub fn expect_copied(place: &Path) {
    expect_same(&place.join("tree"), &place.join("copy"));
    assert_eq!(names(place), ["copy", "tree"]);
}

pub fn of_fleet(said: &Value, field: &str) -> Value {
    said["fleet"][field].clone()
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// Returns the output of `thalweg fleet --json`; `None` if no fleet exists.
pub fn status(place: &Path) -> Option<Value> {
    let ran = run(thalweg().args(["fleet", "--json", "copy"]).current_dir(place));
    (ran.code() == 0).then(|| ran.all_json())
}

pub fn has_plan(place: &Path) -> bool {
    place.join(".copy.thalweg-fleet/plan").exists()
}

/// Starts ranks that copy slowly, and waits until the plan exists.
pub fn start_slowly(place: &Path, size: u64, options: &[&str]) -> Vec<Running> {
    let options = [&["--limit=8M", "--jobs=2"], options].concat();
    let mut all: Vec<_> =
        (0..size).map(|n| Running::start(&mut rank(place, n, size, &options))).collect();
    while !has_plan(place) && !all[0].has_ended() {
        thread::sleep(Duration::from_millis(1));
    }
    all
}
