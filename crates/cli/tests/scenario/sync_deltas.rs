//! A sync replaces a large changed file by a clone of the old one, in which only the differing blocks are written.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};
use thalweg_testing::Sample;

use crate::support::{
    Running, Scratch, bytes, mounts, names, run, scratch::unfinished, skip::has_tools, thalweg,
};

const LEN: u64 = 64 << 20;

/// A source on another file system, and a destination that can clone.
struct Pair {
    source: Scratch,
    place: Scratch,
    root: &'static Path,
}

fn pairs(test: &str) -> Vec<Pair> {
    let roots = ["xfs", "btrfs"].into_iter().filter_map(|name| mounts().get(test, name));
    let pair = |root| Pair { source: Scratch::new(), place: Scratch::within(root), root };
    roots.map(pair).collect()
}

impl Pair {
    fn old(&self) -> PathBuf {
        self.place.join("dst/file")
    }

    fn source_file(&self) -> PathBuf {
        self.source.join("file")
    }

    /// Writes the old file and an equal source. A hard link to the old file keeps its blocks allocated.
    fn begin(&self) {
        drop(fs::remove_dir_all(self.place.join("dst")));
        drop(fs::remove_file(self.place.join("kept")));
        fs::create_dir(self.place.join("dst")).unwrap();
        bytes::write(&self.old(), 1, LEN);
        File::options()
            .write(true)
            .open(self.old())
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        fs::hard_link(self.old(), self.place.join("kept")).unwrap();
        bytes::write(&self.source_file(), 1, LEN);
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = thalweg();
        command.args(["sync", "--json"]).args(options).arg(self.source.path());
        command.arg(self.place.join("dst"));
        command
    }

    /// Checks that the files are equal, that no other file exists, and that the second name has the unchanged old file.
    #[track_caller]
    fn expect_equal(&self, context: &str) {
        let cmp = run(Command::new("cmp").args([self.old(), self.source_file()]));
        assert_eq!(cmp.code(), 0, "{context}: {}", cmp.said());
        assert_eq!(names(&self.place.join("dst")), ["file"], "{context}");
        bytes::expect(&self.place.join("kept"), 1, LEN);
    }
}

fn set_len(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Changes a source.
type Edit = fn(&Path);

const EDITS: [(&str, Edit); 6] = [
    ("scattered", |path| {
        for n in 0..16 {
            bytes::write_at(path, 2, n * (4 << 20) + 4095, 3);
        }
    }),
    ("shorter", |path| set_len(path, LEN - 5000)),
    ("longer", |path| bytes::write_at(path, 3, LEN - 7, 1 << 20)),
    ("touched", |path| bytes::write_at(path, 1, 0, 1)),
    ("with a hole", |path| {
        make_hole(path, 16 << 20, 8 << 20);
        bytes::write_at(path, 4, 40 << 20, 4096);
    }),
    ("with a hole at the end", |path| {
        set_len(path, LEN - (8 << 20));
        set_len(path, LEN + (1 << 20));
    }),
];

/// Makes a hole in a file.
fn make_hole(path: &Path, at: u64, len: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags, at, len).expect("a hole");
}

/// The bytes of a file in extents that it shares with another file, as FIEMAP reports them.
fn shared_bytes(file: &Path) -> u64 {
    // Syncs the file first, because delayed writes have no extents yet.
    run(Command::new("sync").arg(file)).expect(0);
    let ran = run(Command::new("filefrag").args(["-s", "-v", "-b1024"]).arg(file)).expect(0);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let shared = text.lines().filter(|line| line.contains("shared"));
    let length = |line: &str| line.split(':').nth(3)?.trim().parse::<u64>().ok();
    shared.map(|line| length(line).expect("the length of an extent") * 1024).sum()
}

#[test]
fn only_the_blocks_that_differ_are_allocated() {
    let test = "only_the_blocks_that_differ_are_allocated";
    if !has_tools(test, &["filefrag"]) {
        return;
    }
    for pair in pairs(test) {
        for (what, edit) in Sample::new(test, 3).of(EDITS) {
            let context = format!("{what} on {}", pair.root.display());
            pair.begin();
            edit(&pair.source_file());
            run(&mut pair.command(&["--verify"])).expect(0);
            pair.expect_equal(&context);
            let shared = shared_bytes(&pair.old());
            assert!(shared > LEN / 2, "{context}: only {shared} bytes are shared");
        }
    }
}

#[test]
fn a_hole_of_the_source_becomes_a_hole() {
    for pair in pairs("a_hole_of_the_source_becomes_a_hole") {
        pair.begin();
        make_hole(&pair.source_file(), 8 << 20, 32 << 20);
        run(&mut pair.command(&[])).expect(0);
        pair.expect_equal("a hole");
        let blocks = fs::metadata(pair.old()).unwrap().blocks() * 512;
        assert!(blocks <= LEN - (31 << 20), "{blocks} bytes on {}", pair.root.display());
    }
}

#[test]
fn files_with_nothing_in_common_are_copied() {
    for pair in pairs("files_with_nothing_in_common_are_copied") {
        pair.begin();
        bytes::write(&pair.source_file(), 9, LEN + 1);
        run(&mut pair.command(&["--verify"])).expect(0);
        pair.expect_equal("nothing in common");
    }
}

#[test]
fn a_kill_leaves_the_old_file_and_the_next_run_completes_the_new_one() {
    for pair in pairs("a_kill_leaves_the_old_file_and_the_next_run_completes_the_new_one") {
        for milliseconds in Sample::new("a_kill_leaves_the_old_file", 3).of([0, 150, 400, 900]) {
            pair.begin();
            EDITS[0].1(&pair.source_file());
            let mut running = Running::start(&mut pair.command(&["--limit=16M"]));
            running.wait_until_open(|path| path.to_string_lossy().contains("thalweg-part"));
            thread::sleep(Duration::from_millis(milliseconds));
            drop(running.child().kill());
            running.finish();
            bytes::expect(&pair.old(), 1, LEN);
            bytes::expect(&pair.place.join("kept"), 1, LEN);
            run(&mut pair.command(&["--verify"])).expect(0);
            pair.expect_equal("after a kill");
            assert_eq!(unfinished(&pair.place.join("dst")), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn a_source_that_changes_is_reported_as_in_a_copy() {
    for pair in pairs("a_source_that_changes_is_reported_as_in_a_copy") {
        let changes: [(&str, Edit); 3] = [
            ("truncated", |path| set_len(path, 4097)),
            ("grown", |path| bytes::write_at(path, 5, LEN, 1 << 20)),
            ("rewritten", |path| bytes::write_at(path, 6, 0, 1 << 20)),
        ];
        for (what, change) in Sample::new("a_source_that_changes", 3).of(changes) {
            pair.begin();
            EDITS[0].1(&pair.source_file());
            let mut running = Running::start(&mut pair.command(&["--limit=16M"]));
            // Changes the source while the sync runs. A truncated source ends the sync at once.
            let is_part = |path: &Path| path.to_string_lossy().contains("thalweg-part");
            assert!(running.wait_until_open(is_part), "{what}");
            change(&pair.source_file());
            running.finish().expect(3);
            bytes::expect(&pair.place.join("kept"), 1, LEN);
            run(&mut pair.command(&["--verify"])).expect(0);
            pair.expect_equal(what);
        }
    }
}
