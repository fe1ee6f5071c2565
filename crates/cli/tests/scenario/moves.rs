//! `thalweg move` deletes a source only after each copy was compared with it.

use std::{fs, os::unix::fs::MetadataExt, path::Path, thread, time::Duration};
use thalweg_testing::{Dice, from_env};

use crate::{
    support::{
        Ran, Running, Scratch, names, run, shell,
        skip::{has_tools, is_root, skip},
        thalweg,
    },
    sync_trees::{edit, record},
};

fn moved(place: &Path, words: &[&Path]) -> Ran {
    run(thalweg().arg("move").args(words).current_dir(place))
}

/// Makes a directory on a file system other than that of `here`; records a skip if there is none.
pub fn elsewhere(test: &str, here: &Scratch) -> Option<Scratch> {
    let memory = Path::new("/dev/shm");
    let device = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.dev());
    if device(memory) == 0 || device(memory) == device(here.path()) {
        skip(test, "/dev/shm is not another file system");
        return None;
    }
    Some(Scratch::within(memory))
}

#[test]
fn a_move_within_a_file_system_is_a_rename() {
    let scratch = Scratch::new();
    shell(scratch.path(), "mkdir -p a/d into; echo 1 >a/d/f; echo 2 >g; stat -c %i a/d/f >inode")
        .expect(0);
    moved(scratch.path(), &[Path::new("a"), Path::new("b")]).expect(0);
    shell(scratch.path(), "! test -e a && test $(stat -c %i b/d/f) = $(cat inode)").expect(0);
    moved(scratch.path(), &[Path::new("b"), Path::new("g"), Path::new("into")]).expect(0);
    assert_eq!(names(&scratch.join("into")), ["b", "g"]);
    assert_eq!(names(scratch.path()), ["inode", "into"]);
    // The content of the source is added to an existing directory.
    shell(scratch.path(), "mkdir -p c/d; echo 3 >c/d/h").expect(0);
    moved(scratch.path(), &[Path::new("c"), Path::new("into/b")]).expect(0);
    assert_eq!(names(&scratch.join("into/b/d")), ["f", "h"]);
    assert!(!scratch.join("c").exists());
    let ran = moved(scratch.path(), &[Path::new("into"), Path::new("into/b/x")]).expect(1);
    ran.expect_said("overlaps the destination");
    let renamed = moved(scratch.path(), &[Path::new("inode"), Path::new("new")]).expect(2);
    renamed.expect_said("hint: use `mv` to give a file another name");
}

#[test]
fn a_move_to_another_file_system_moves_everything() {
    let test = "a_move_to_another_file_system_moves_everything";
    let mut dice = Dice::fixed(test, 3);
    for _ in 0..from_env("THALWEG_CASES", 5) {
        let scratch = Scratch::new();
        let Some(other) = elsewhere(test, &scratch) else { return };
        let source = scratch.folder("source");
        edit(&mut dice, &source, 60);
        let before = record(&source);
        moved(scratch.path(), &[&source, &other.join("copy")]).expect(0);
        assert_eq!(record(&other.join("copy")), before);
        assert!(!source.exists());
    }
}

#[test]
fn a_killed_move_loses_nothing_and_the_next_one_ends_it() {
    let test = "a_killed_move_loses_nothing_and_the_next_one_ends_it";
    let mut dice = Dice::new(test);
    for _ in 0..from_env("THALWEG_KILLS", 5) {
        let scratch = Scratch::new();
        let Some(other) = elsewhere(test, &scratch) else { return };
        let line = "mkdir -p source/d; for i in $(seq 300); do echo $i >source/d/$i; done";
        shell(scratch.path(), line).expect(0);
        let (source, copy) = (scratch.join("source"), other.join("copy"));
        let mut running = Running::start(thalweg().arg("move").args([&source, &copy]));
        thread::sleep(Duration::from_millis(dice.below(80)));
        drop(running.child().kill());
        drop(running.finish());
        for number in 1..=300 {
            let name = format!("d/{number}");
            let has = |root: &Path| {
                fs::read_to_string(root.join(&name)).is_ok_and(|text| text == format!("{number}\n"))
            };
            assert!(has(&source) || has(&copy), "{name}");
        }
        if source.exists() {
            moved(scratch.path(), &[&source, &copy]).expect(0);
        }
        assert!(!source.exists());
        assert_eq!(names(&copy.join("d")).len(), 300);
    }
}

#[test]
fn an_entry_that_is_replaced_after_its_copy_stays_in_the_source() {
    let test = "an_entry_that_is_replaced_after_its_copy_stays_in_the_source";
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    let line = "mkdir source; ln -s old source/link; echo old >source/file; ln -s kept source/z; \
                head -c 3000000 /dev/urandom >source/large";
    shell(scratch.path(), line).expect(0);
    // In an existing directory each copy is visible at once, while the large file is still being copied.
    let copy = other.folder("copy");
    let mut command = thalweg();
    command.args(["move", "--limit=800K", "--jobs=4"]).args([&scratch.join("source"), &copy]);
    let mut running = Running::start(&mut command);
    while !["link", "file", "z"].iter().all(|name| copy.join(name).symlink_metadata().is_ok()) {
        assert!(!running.has_ended(), "over before it was disturbed");
        thread::sleep(Duration::from_millis(1));
    }
    let line = "ln -s new source/n; mv -T source/n source/link; echo new >source/n; mv source/n source/file";
    shell(scratch.path(), line).expect(0);
    running
        .finish()
        .expect(1)
        .expect_said("source/link': changed after it was copied; not deleted");
    assert_eq!(names(&scratch.join("source")), ["file", "link"]);
    assert_eq!(fs::read_link(scratch.join("source/link")).unwrap(), Path::new("new"));
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("old"));
    assert_eq!(fs::read_to_string(copy.join("file")).unwrap(), "old\n");
}

#[test]
fn a_source_that_cannot_be_read_is_kept_with_all_others() {
    let test = "a_source_that_cannot_be_read_is_kept_with_all_others";
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    // thalweg reserves this name for partial files, so the copy refuses it.
    shell(scratch.path(), "mkdir source; echo 1 >source/a; echo 2 >source/.b.thalweg-part")
        .expect(0);
    let ran = moved(scratch.path(), &[Path::new("source"), &other.join("copy")]).expect(1);
    ran.expect_said("nothing was deleted from the source");
    assert_eq!(names(&scratch.join("source")), [".b.thalweg-part", "a"]);
}

#[test]
fn the_trash_may_be_on_another_file_system() {
    let test = "the_trash_may_be_on_another_file_system";
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    shell(scratch.path(), "mkdir -p s t/old; echo new >s/f; echo before >t/f; echo gone >t/old/g")
        .expect(0);
    let mut sync = thalweg();
    sync.args(["sync", "--delete", "--trash"]).arg(other.join("trash")).args(["s", "t"]);
    run(sync.current_dir(scratch.path())).expect(0);
    let read = |name: &str| fs::read_to_string(other.join("trash").join(name)).unwrap();
    assert_eq!((read("f"), read("old/g")), ("before\n".into(), "gone\n".into()));
    shell(scratch.path(), "diff -r -x .thalweg-sync s t").expect(0);
}

#[test]
fn a_former_destination_of_syncs_is_moved_without_their_records() {
    let test = "a_former_destination_of_syncs_is_moved_without_their_records";
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    let line = "mkdir -p a/d; echo 1 >a/f; echo 2 >a/d/g; $T sync --delete a source; $T sync --delete a source/b;
        test -e source/.thalweg-sync && test -e source/b/.thalweg-sync";
    shell(scratch.path(), line).expect(0);
    let copy = other.join("copy");
    moved(scratch.path(), &[Path::new("source"), &copy]).expect(0);
    assert!(!scratch.join("source").exists());
    assert_eq!(names(&copy), ["b", "d", "f"]);
    assert_eq!(names(&copy.join("b")), ["d", "f"]);
    // A file of this name that no sync wrote is kept.
    shell(scratch.path(), "mkdir source; echo 1 >source/f; echo mine >source/.thalweg-sync")
        .expect(0);
    moved(scratch.path(), &[Path::new("source"), &copy]).expect(1);
    assert_eq!(names(&scratch.join("source")), [".thalweg-sync"]);
}

#[test]
fn a_file_that_two_mounts_show_is_not_deleted() {
    let test = "a_file_that_two_mounts_show_is_not_deleted";
    if !is_root(test) || !has_tools(test, &["unshare"]) {
        return;
    }
    let setup = "mount -t tmpfs none on && cd on && mkdir -p disk/photos/d pool up work && echo 1 >disk/photos/a
        echo 2 >disk/photos/d/b; touch disk/photos/empty; ln -s a disk/photos/l; mkfifo disk/photos/p
        mount -t overlay -o lowerdir=disk,upperdir=up,workdir=work overlay pool || exit 77
        list() { find disk -printf '%p %y %s %T@\\n' | sort; }; list >before; ";
    let check = "; test $? = 1 && list | diff before - && cat pool/photos/a pool/photos/d/b";
    for command in [
        "$T move disk/photos pool/photos",
        "$T move disk/photos/ pool/photos/",
        "touch pool/photos/new; $T move disk/photos pool/photos",
        "$T move disk/photos/a disk/photos/empty disk/photos/d pool/photos",
    ] {
        let scratch = Scratch::new();
        let inside = [setup, command, check].concat();
        let line = "mkdir on; unshare --mount --propagation=slave bash -c \"$INSIDE\"";
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", line]).env("INSIDE", inside).env("T", env!("CARGO_BIN_EXE_thalweg"));
        let ran = run(shell.current_dir(scratch.path()));
        if ran.code() == 77 {
            return skip(test, "no overlay can be mounted on tmpfs here");
        }
        let ran = ran.expect(0);
        ran.expect_said("is the same file as");
        assert!(ran.stdout.ends_with(b"1\n2\n"), "{command}: {}", ran.said());
    }
}

#[test]
fn a_copy_that_another_program_made_is_synced_before_its_source_is_deleted() {
    let test = "a_copy_that_another_program_made_is_synced_before_its_source_is_deleted";
    if !has_tools(test, &["strace"]) {
        return;
    }
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    let memory = other.path().display();
    let is_synced = "grep -q 'fsync([0-9]*<.*/to/f>' trace";
    for line in [
        format!("echo 1 >{memory}/f; cp -p {memory}/f to; $S $T move {memory}/f to"),
        format!(
            "echo 1 >{memory}/f; cp -p {memory}/f to; $S $T copy -p --resume --fsync {memory}/f to"
        ),
        format!("echo 1 >{memory}/f; cp -p {memory}/f to; $S $T sync --fsync {memory}/f to"),
    ] {
        let line = format!("rm -rf to; mkdir to; S='strace -fyo trace'; {line} && {is_synced}");
        shell(scratch.path(), &line).expect(0);
    }
}
