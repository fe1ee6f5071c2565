//! SIGKILL at random moments, then `--resume`. At every moment, the final name does not exist or has a complete file. A
//! resumed copy does not move the same bytes again. `THALWEG_KILLS=100` makes the campaign longer.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::support::{
    Running, Scratch, bytes, file_methods, names, run, scratch::unfinished, thalweg,
};
use thalweg_testing::{Dice, from_env};

const LEN: u64 = 32 << 20;
/// With this limit an undisturbed copy takes 700 ms, so a kill within this time usually comes during the copy. Half of
/// the copy takes much longer than the interval at which the journal is written.
const LIMIT: &str = "--limit=48M";
const WHILE_IT_RUNS: std::ops::Range<u64> = 0..700;
/// Duration of an undisturbed copy of the tree in milliseconds.
const WHILE_THE_TREE_RUNS: std::ops::Range<u64> = 0..260;

fn resumable(options: &[&str], source: &Path, copy: &Path) -> Command {
    let mut command = thalweg();
    command.args(["copy", "--resume", "--json"]).args(options).args([source, copy]);
    command
}

/// Starts a copy and kills it some milliseconds after it has begun to write. Returns `true` if it was still running.
fn kill_after(command: &mut Command, milliseconds: u64) -> bool {
    let mut running = Running::start(command);
    running.wait_until_open(|path| path.to_string_lossy().contains("thalweg-part"));
    thread::sleep(Duration::from_millis(milliseconds));
    drop(running.child().kill());
    let ran = running.finish();
    assert!(ran.status.code().is_none_or(|code| code == 0), "{}", ran.said());
    ran.status.code().is_none()
}

/// Calls `look` repeatedly while `work` runs.
fn watching<T>(look: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Relaxed) {
                look();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Relaxed);
        watcher.join().expect("what the watcher saw");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the number of correct bytes at the start of the partial file, which a resume can keep.
fn begun(folder: &Path) -> u64 {
    let parts = unfinished(folder)
        .into_iter()
        .filter(|path| path.extension() == Some("thalweg-part".as_ref()));
    parts.map(|path| bytes::prefix(&path, 1)).max().unwrap_or(0)
}

#[derive(Debug, Default)]
struct Campaign {
    landed: u64,
    missed: u64,
    resumes: u64,
    moved_less: u64,
}

impl Campaign {
    fn count(&mut self, landed: bool) -> bool {
        self.landed += u64::from(landed);
        self.missed += u64::from(!landed);
        landed
    }
}

#[test]
fn a_killed_copy_resumes_where_it_stopped_and_never_shows_a_part() {
    let mut dice = Dice::new("a_killed_copy_resumes_where_it_stopped_and_never_shows_a_part");
    let kills = from_env("THALWEG_KILLS", 5);
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    bytes::write(&source, 1, 1 << 20);
    let works = |name: &String| {
        let worked =
            run(thalweg().args(["copy", "--method", name]).args([&source, &copy])).code() == 0;
        drop(fs::remove_file(&copy));
        worked
    };
    let methods: Vec<_> = file_methods().into_iter().filter(works).collect();
    bytes::write(&source, 1, LEN);
    let mut campaign = Campaign::default();
    let absent_or_whole = || {
        let len = fs::metadata(&copy).map_or(LEN, |found| found.len());
        assert_eq!(len, LEN, "a part under the final name");
    };
    while campaign.landed < kills {
        assert!(campaign.missed < 4 * kills + 20, "kills do not land: {campaign:?}");
        // Some methods write beyond the bytes that they have completed, but each method must leave a usable partial
        // file. In half of the runs, thalweg chooses the method.
        let method = &methods[dice.within(0..methods.len() as u64) as usize];
        let way = ["--method", method, LIMIT];
        let way = if dice.within(0..2) == 0 { &way[..] } else { &way[2..] };
        watching(absent_or_whole, || {
            // Sometimes kills the resume, too.
            loop {
                let when = dice.within(WHILE_IT_RUNS);
                let landed = campaign.count(kill_after(&mut resumable(way, &source, &copy), when));
                assert!(!copy.exists() || bytes::is(&copy, 1, LEN), "{way:?}: a torn file");
                if !landed || copy.exists() || campaign.landed == kills || dice.within(0..3) == 0 {
                    break;
                }
            }
        });
        if !copy.exists() {
            let begun = begun(scratch.path());
            let account = run(&mut resumable(&[], &source, &copy)).expect(0).json();
            let moved = account["bytes"].as_u64().expect("bytes");
            assert!(moved <= LEN, "{account}");
            campaign.resumes += 1;
            if moved < LEN {
                campaign.moved_less += 1;
            } else {
                // The journal may lag behind by some megabytes, but a resume must use it.
                assert!(begun < LEN / 2, "{way:?}: {begun} bytes were there, all were moved again");
            }
        }
        run(Command::new("cmp").args([&source, &copy])).expect(0);
        assert_eq!(names(scratch.path()), ["copy", "source"]);
        fs::remove_file(&copy).unwrap();
    }
    assert!(campaign.moved_less > 0, "no resume moved less than the whole file: {campaign:?}");
    println!("file: {campaign:?}");
}

/// Makes directories of 28 MiB with small files, and with files that are copied in several steps.
fn plant(tree: &Path) -> Vec<(PathBuf, u64, u64)> {
    let mut files = Vec::new();
    for folder in 0..6_u64 {
        let path = tree.join(format!("folder-{folder}/deeper"));
        fs::create_dir_all(&path).unwrap();
        for n in 0..30 {
            files.push((path.join(n.to_string()), folder * 100 + n, n * 700));
        }
        files.push((path.join("large"), folder * 100 + 99, (4 << 20) + folder));
    }
    for (path, seed, len) in &files {
        bytes::write(path, *seed, *len);
    }
    files
}

#[test]
fn a_killed_tree_resumes_and_every_file_under_its_name_is_whole() {
    let mut dice = Dice::new("a_killed_tree_resumes_and_every_file_under_its_name_is_whole");
    let kills = from_env("THALWEG_KILLS", 5);
    let scratch = Scratch::new();
    let (tree, copy) = (scratch.folder("tree"), scratch.join("copy"));
    let files = plant(&tree);
    let total: u64 = files.iter().map(|(_, _, len)| len).sum();
    let in_copy = |path: &Path| copy.join(path.strip_prefix(&tree).unwrap());
    let whole_or_absent = || {
        for (path, seed, len) in &files {
            let path = in_copy(path);
            assert!(!path.exists() || bytes::is(&path, *seed, *len), "torn: {}", path.display());
        }
    };
    let sizes_right = || {
        for (path, _, len) in &files {
            let found = fs::metadata(in_copy(path)).map_or(*len, |found| found.len());
            assert_eq!(found, *len, "a part under a final name: {}", path.display());
        }
    };
    let mut campaign = Campaign::default();
    while campaign.landed < kills {
        assert!(campaign.missed < 4 * kills + 20, "kills do not land: {campaign:?}");
        // thalweg stages a new tree as a whole, and publishes file by file in an existing directory.
        let new = dice.within(0..2) == 0;
        if !new {
            fs::create_dir(&copy).unwrap();
        }
        let options = ["-aT", if dice.within(0..2) == 0 { "--jobs=1" } else { "--jobs=3" }];
        let slow = ["-aT", options[1], "--limit=112M"];
        loop {
            let mut command = resumable(&slow, &tree, &copy);
            let when = dice.within(WHILE_THE_TREE_RUNS);
            let landed = campaign.count(watching(sizes_right, || kill_after(&mut command, when)));
            whole_or_absent();
            if !landed || campaign.landed == kills || dice.within(0..3) == 0 {
                break;
            }
        }
        let account = run(&mut resumable(&options, &tree, &copy)).expect(0).json();
        let moved = account["bytes"].as_u64().expect("bytes");
        assert!(moved <= total, "{account}");
        campaign.resumes += 1;
        campaign.moved_less += u64::from(moved < total);
        let diff = ["-r", "--no-dereference"];
        run(Command::new("diff").args(diff).args([&tree, &copy])).expect(0);
        whole_or_absent();
        assert_eq!(unfinished(scratch.path()), Vec::<PathBuf>::new());
        assert_eq!(names(scratch.path()), ["copy", "tree"]);
        fs::remove_dir_all(&copy).unwrap();
    }
    assert!(campaign.moved_less > 0, "no resume moved less than the whole tree: {campaign:?}");
    println!("tree: {campaign:?}");
}
