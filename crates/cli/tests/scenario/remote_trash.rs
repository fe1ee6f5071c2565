//! `thalweg sync --trash` from and to other machines.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use thalweg_testing::{Dice, sample_share};

use crate::{
    moves::elsewhere,
    remote_copies::over_each,
    remote_syncs::BothWays,
    support::{Ran, Running, Scratch, bytes, names, run, shell, sshd::OtherMachine, thalweg},
    sync_trees::{TreeRecord, edit, lines, record},
};

/// Length of a file that the client fetches with a separate request.
const LARGE: u64 = 17 << 20;

fn trash(path: &Path) -> String {
    format!("--trash={}", path.display())
}

/// A source, a destination with an older version of each kind of entry, and the directory DIR of `--trash`.
struct OldAndNew<'a> {
    both: BothWays<'a>,
    dst: PathBuf,
    dir: PathBuf,
}

impl<'a> OldAndNew<'a> {
    fn make(scratch: &Scratch, machine: &'a OtherMachine, is_push: bool) -> Self {
        let place = scratch.folder(&format!("push-{is_push}"));
        let line = "mkdir -p source/d dst/d dst/gone/e; ln -s new source/d/link; ln -s old dst/d/link; \
                    echo newer >source/d/file; echo old >dst/d/file; echo gone >dst/gone/e/g; ln -s g dst/gone/e/l; \
                    echo both >source/one; ln source/one source/two; echo old-one >dst/one; echo old-two >dst/two; \
                    echo link >source/was-link; ln -s nowhere dst/was-link; ln -s x source/was-file; echo file >dst/was-file; \
                    echo same >source/mode; cp -p source/mode dst/mode; chmod 600 dst/mode; mkfifo dst/gone/pipe; \
                    echo fifo >source/was-pipe; mkfifo dst/was-pipe";
        shell(&place, line).expect(0);
        let (source, dst) = (place.join("source"), place.join("dst"));
        bytes::write(&source.join("large"), 1, LARGE);
        bytes::write(&dst.join("large"), 2, LARGE + 7);
        Self { both: BothWays { machine, source, is_push }, dst, dir: place.join("dir") }
    }

    fn sync(&self, words: &[&str]) -> Ran {
        let trash = trash(&self.dir);
        self.both.sync(&[&["--delete", "--force", &trash], words].concat(), &self.dst)
    }

    fn check(&self) {
        assert_eq!(record(&self.dst), record(&self.both.source));
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap();
        for (name, content) in [
            ("d/file", "old\n"),
            ("gone/e/g", "gone\n"),
            ("one", "old-one\n"),
            ("two", "old-two\n"),
            ("was-file", "file\n"),
        ] {
            assert_eq!(read(name), content, "{name}");
        }
        bytes::expect(&self.dir.join("large"), 2, LARGE + 7);
        for (name, target) in [("d/link", "old"), ("gone/e/l", "g"), ("was-link", "nowhere")] {
            assert_eq!(fs::read_link(self.dir.join(name)).unwrap(), Path::new(target));
        }
        let kept = ["d", "gone", "large", "one", "two", "was-file", "was-link", "was-pipe"];
        assert_eq!(names(&self.dir), kept);
        assert_eq!(fs::metadata(&self.dir).unwrap().permissions().mode() & 0o7777, 0o700);
    }
}

#[test]
fn every_kind_of_replaced_or_deleted_entry_is_kept() {
    over_each("every_kind_of_replaced_or_deleted_entry_is_kept", |scratch, machine| {
        for is_push in [false, true] {
            let case = OldAndNew::make(scratch, machine, is_push);
            let planned = lines(&case.sync(&["-n"]).expect(0));
            assert!(!case.dir.exists() && case.dst.join("gone").exists());
            // With `never`, each file is published at once.
            let fsync = if is_push { "--fsync=auto" } else { "--fsync=never" };
            assert_eq!(lines(&case.sync(&["-i", fsync]).expect(0)), planned, "{fsync}");
            case.check();
            assert!(lines(&case.sync(&["-i"]).expect(0)).is_empty());
            // Nothing in DIR is replaced.
            shell(&case.both.source, "echo newest >d/file; ln -sfn newest d/link").expect(0);
            case.sync(&[]).expect(0);
            let read = |name: &str| fs::read_to_string(case.dir.join(name)).unwrap();
            assert_eq!([read("d/file"), read("d/file.~1~")], ["old\n", "newer\n"]);
            assert_eq!(fs::read_link(case.dir.join("d/link.~1~")).unwrap(), Path::new("new"));
        }
    });
}

#[test]
fn kept_entries_may_go_to_another_file_system() {
    let test = "kept_entries_may_go_to_another_file_system";
    let scratch = Scratch::new();
    let Some(other) = elsewhere(test, &scratch) else { return };
    let machine = OtherMachine::by_script(scratch.path());
    for (is_push, fsync) in [(false, "--fsync=auto"), (true, "--fsync=always")] {
        let case = OldAndNew::make(&scratch, &machine, is_push);
        let case = OldAndNew { dir: other.join(&format!("{is_push}")), ..case };
        case.sync(&[fsync]).expect(0);
        case.check();
    }
}

/// A new destination has no old entries to keep, but the sync creates DIR, as a local sync does.
#[test]
fn a_new_destination_keeps_nothing() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let case = OldAndNew::make(&scratch, &machine, is_push);
        fs::remove_dir_all(&case.dst).unwrap();
        case.sync(&[]).expect(0);
        assert_eq!(record(&case.dst), record(&case.both.source));
        assert!(names(&case.dir).is_empty());
    }
}

#[test]
fn a_large_file_that_continues_keeps_the_old_one_once() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let case = OldAndNew::make(&scratch, &machine, false);
    let far = ["--limit=2M".to_owned(), trash(&case.dir)];
    let words: Vec<&str> = far.iter().map(String::as_str).collect();
    let mut running = Running::start(&mut case.both.command(&words, &case.dst));
    let partial = || {
        let entries = fs::read_dir(&case.dst).unwrap().map(|entry| entry.unwrap().path());
        let mut hidden = entries.filter(|path| path.display().to_string().contains("/.large"));
        hidden.any(|path| fs::metadata(path).is_ok_and(|meta| meta.blocks() * 512 > 2 << 20))
    };
    while !partial() {
        assert!(!running.has_ended(), "over before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(running.child().kill());
    drop(running.finish());
    assert!(!case.dir.join("large").exists());
    bytes::expect(&case.dst.join("large"), 2, LARGE + 7);
    case.sync(&[]).expect(0);
    case.check();
}

#[test]
fn a_directory_for_kept_entries_is_refused_as_by_a_local_sync() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    for is_push in [false, true] {
        let case = OldAndNew::make(&scratch, &machine, is_push);
        let before = record(&case.dst);
        let link = scratch.join(&format!("link-{is_push}"));
        std::os::unix::fs::symlink(&case.dst, &link).unwrap();
        for (dir, why) in [
            (case.dst.clone(), "overlaps the destination"),
            (link, "overlaps the destination"),
            (case.dst.join("no/such"), "no such file or directory"),
            (case.dst.join("mode"), "not a directory"),
        ] {
            let ran = case.both.sync(&["--delete", &trash(&dir)], &case.dst).expect(1);
            ran.expect_said(why);
            assert_eq!(record(&case.dst), before, "{}", dir.display());
        }
        // The path is relative to the home directory of the other machine, or to the current directory on this machine.
        let inside = format!("--trash=push-{is_push}/dst/dir");
        let mut command = case.both.command(&["--delete", "--force", &inside], &case.dst);
        run(command.current_dir(scratch.path())).expect(0);
        let dir = case.dst.join("dir");
        assert_eq!(fs::read_to_string(dir.join("gone/e/g")).unwrap(), "gone\n");
        // DIR in DST is neither deleted nor counted.
        let ran = case.both.sync(&["--delete", "-i", &trash(&dir)], &case.dst).expect(0);
        assert!(lines(&ran).is_empty());
        assert!(dir.join("gone").exists());
    }
}

/// Removes entries and attributes that the two kinds of sync treat differently:
///
/// - Between machines, a directory replaces a file or link before its content arrives. FIFOs are not compared here.
/// - The receiving side fetches files of other users again. A local sync changes their owner.
/// - A local sync replaces a symbolic link if its time differs, and prefers an existing name of a file with several.
fn make_compatible(source: &Path, dst: &Path) {
    shell(source, "find . -type p -delete; find . ! -type d -links +1 -delete").expect(0);
    for root in [source, dst] {
        shell(root, "chown -hR $(id -u) .; find . -type l -exec touch -hd @1 {} +").expect(0);
    }
    let line = format!(
        "find . -mindepth 1 -printf '%P\\0' | while IFS= read -rd '' p; do o='{}'/$p; \
         if [ ! -e \"$o\" ] && [ ! -L \"$o\" ]; then continue; fi; d() {{ [ -d \"$1\" ] && [ ! -L \"$1\" ]; }}; \
         if d \"$p\" && ! d \"$o\"; then rm \"$o\"; fi; done",
        dst.display()
    );
    shell(source, &line).expect(0);
}

/// Returns the paths with different entries. With the contents, the message of a failed assertion would be too long.
fn differences<'r>(one: &'r TreeRecord, other: &'r TreeRecord) -> Vec<&'r PathBuf> {
    let all = one.entries.keys().chain(other.entries.keys());
    all.filter(|path| one.entries.get(*path) != other.entries.get(*path)).collect()
}

#[test]
fn random_trees_leave_the_kept_entries_of_a_local_sync() {
    let test = "random_trees_leave_the_kept_entries_of_a_local_sync";
    over_each(test, |scratch, machine| {
        let mut dice = Dice::fixed(test, 41);
        for is_push in [false, true] {
            let place = scratch.folder(&format!("push-{is_push}"));
            let [source, dst, local] = ["source", "dst", "local"]
                .map(|name| scratch.folder(&format!("push-{is_push}/{name}")));
            let [dir, local_dir] = ["dir", "local-dir"].map(|name| place.join(name));
            let both = BothWays { machine, source: source.clone(), is_push };
            for round in 0..20_u64.div_ceil(sample_share(4)) {
                eprintln!("push: {is_push}, round {round}");
                let (changes, others) = (5 + dice.below(20), dice.below(20));
                edit(&mut dice, &source, changes);
                edit(&mut dice, &dst, others);
                make_compatible(&source, &dst);
                shell(&place, "rm -rf local; cp -a dst local").expect(0);
                let wanted = run(thalweg()
                    .args(["sync", "-i", "--delete", "--force", &trash(&local_dir)])
                    .args([&source, &local]))
                .expect(0);
                let words = ["--delete", "--force", &trash(&dir)];
                let planned = lines(&both.sync(&[&words[..], &["-n"]].concat(), &dst).expect(0));
                let done = lines(&both.sync(&[&words[..], &["-i"]].concat(), &dst).expect(0));
                assert_eq!(planned, done);
                assert_eq!(done, lines(&wanted), "the local sync");
                assert!(record(&dst) == record(&local));
                shell(&place, "find dir local-dir -type d -exec touch -d @1 {} +").expect(0);
                let (kept, of_local) = (record(&dir), record(&local_dir));
                assert_eq!(differences(&kept, &of_local), Vec::<&PathBuf>::new());
                assert_eq!(kept.links, of_local.links);
            }
            assert!(!names(&dir).is_empty());
        }
    });
}
