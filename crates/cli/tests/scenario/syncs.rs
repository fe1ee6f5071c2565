//! `thalweg sync` makes a directory equal to another one, and deletes nothing that it should not.

use std::{fs, path::Path};

use crate::{
    support::{Ran, Scratch, names, run, shell, thalweg},
    sync_trees::lines,
};

/// Runs `thalweg sync` with these words in a directory.
pub fn sync(place: &Path, words: &str) -> Ran {
    let mut command = thalweg();
    run(command.arg("sync").args(words.split_whitespace()).current_dir(place))
}

/// Makes a source with a few entries, and syncs it to a destination.
fn pair() -> Scratch {
    let scratch = Scratch::new();
    let line = "mkdir -p src/d/e && echo 1 >src/a && echo 2 >src/d/b && ln -s a src/link && ln src/a src/a2";
    shell(scratch.path(), line).expect(0);
    sync(scratch.path(), "src dst").expect(0);
    scratch
}

#[test]
fn the_content_of_a_directory_becomes_that_of_another_with_and_without_a_slash() {
    let scratch = pair();
    for words in ["-i src dst", "-i src/ dst/", "-i ./src dst/."] {
        assert_eq!(lines(&sync(scratch.path(), words).expect(0)), [""; 0], "{words}");
    }
    shell(scratch.path(), "diff -r src dst && test dst/a -ef dst/a2").expect(0);
    sync(scratch.path(), "src src/a dst").expect(0);
    assert!(scratch.join("dst/src/d/b").exists());
    let ran = sync(scratch.path(), "src src/a gone").expect(2);
    ran.expect_said("need an existing directory");
}

#[test]
fn each_change_is_one_line_and_a_dry_run_prints_the_lines_of_the_real_one() {
    let scratch = pair();
    let edits = "echo more >>src/d/b; chmod 600 src/a; touch -d 2001-01-01 src/link -h; echo n >src/new; \
                 mkdir dst/x; echo y >dst/x/y; rmdir src/d/e; touch -r dst src; touch -r dst/d src/d";
    shell(scratch.path(), edits).expect(0);
    let before = shell(scratch.path(), "find dst -printf '%p %i %T@ %C@ %m\\n' | sort").stdout;
    let dry = lines(&sync(scratch.path(), "-n --delete --jobs 1 src dst").expect(0));
    let after = shell(scratch.path(), "find dst -printf '%p %i %T@ %C@ %m\\n' | sort").stdout;
    assert_eq!(String::from_utf8_lossy(&before), String::from_utf8_lossy(&after));
    let real = lines(&sync(scratch.path(), "-i --delete --jobs 1 src dst").expect(0));
    assert_eq!(dry, real);
    let has = |end: &str| real.iter().any(|line| line.ends_with(end));
    for line in [">f.st...... d/b", ".L..t...... link", ">f+++++++++ new"] {
        assert!(has(line), "{line}: {real:#?}");
    }
    // The change of a file with two names is printed once, with either name.
    assert!(has(".f...p..... a") != has(".f...p..... a2"), "{real:#?}");
    for line in ["*deleting   x/y", "*deleting   x/", "*deleting   d/e/"] {
        assert!(has(line), "{line}: {real:#?}");
    }
    shell(scratch.path(), "diff -r src dst -x .thalweg-sync").expect(0);
    assert_eq!(lines(&sync(scratch.path(), "-i --delete src dst").expect(0)), [""; 0]);
}

/// With several threads, any name of a file may be printed, so all names of a file count as one. If hard links in the
/// destination are different files in the source, the lines also depend on the threads. Only runs with `--jobs=1` are
/// compared with rsync.
#[test]
fn a_dry_run_with_several_threads_foresees_files_with_several_names() {
    let scratch = Scratch::new();
    let line = "mkdir -p src/x src/y src/z; for i in $(seq 30); do echo $i >src/x/$i; ln src/x/$i src/y/$i; \
                ln src/x/$i src/z/$i; done";
    shell(scratch.path(), line).expect(0);
    let names = |ran: &Ran| -> Vec<String> {
        let mut all: Vec<String> = lines(ran)
            .iter()
            .map(|line| line.replace(" y/", " x/").replace(" z/", " x/"))
            .collect();
        all.sort();
        all
    };
    for edit in [
        ":",
        "for i in $(seq 9); do echo more >>src/x/$i; chmod 600 src/y/2$i; done",
        "for i in $(seq 5 25); do rm src/y/$i; echo other >src/y/$i; done",
    ] {
        shell(scratch.path(), edit).expect(0);
        let dry = names(&sync(scratch.path(), "-n --delete --jobs 4 src dst").expect(0));
        let real = names(&sync(scratch.path(), "-i --delete --jobs 4 src dst").expect(0));
        assert_eq!(dry, real, "{edit}");
        shell(scratch.path(), "diff -r src dst -x .thalweg-sync").expect(0);
        assert_eq!(lines(&sync(scratch.path(), "-i --delete src dst").expect(0)), [""; 0]);
    }
}

#[test]
fn entries_of_another_type_are_replaced_and_directories_only_with_delete() {
    let scratch = Scratch::new();
    let line = "mkdir -p src/f dst/d/sub; echo 1 >src/f/x; echo 2 >src/d; ln -s d src/l; echo 3 >dst/f; \
                echo 4 >dst/l; echo 5 >dst/d/sub/y";
    shell(scratch.path(), line).expect(0);
    sync(scratch.path(), "src dst").expect(1).expect_said("cannot overwrite directory");
    assert!(scratch.join("dst/d/sub/y").exists() && scratch.join("dst/f/x").exists());
    let dry = lines(&sync(scratch.path(), "-n --delete --force src dst").expect(0));
    let real = lines(&sync(scratch.path(), "-i --delete --force src dst").expect(0));
    assert_eq!(dry, real);
    shell(scratch.path(), "diff -r --no-dereference src dst -x .thalweg-sync").expect(0);
}

#[test]
fn nothing_is_deleted_without_a_reason_to_trust_the_source() {
    let scratch = pair();
    let refuses = |words: &str, why: &str| {
        let before = names(&scratch.join("dst"));
        let ran = sync(scratch.path(), words);
        assert_eq!(ran.code(), 1, "{words}: {}", ran.said());
        ran.expect_said(why);
        let left = names(&scratch.join("dst"));
        let is_kept = before.iter().all(|name| left.contains(name));
        assert!(is_kept, "{words}: {before:?} {left:?}");
    };
    fs::create_dir(scratch.join("empty")).unwrap();
    refuses("--delete empty dst", "the source is empty");
    refuses("-n --delete empty dst", "the source is empty");
    refuses("--delete gone dst", "ENOENT");
    fs::write(scratch.join("dst/extra"), "").unwrap();
    refuses("--delete --max-delete 0 src dst", "1 of 7 entries would be deleted");
    // Simulates an unmounted disk: the source is on another file system than at the last sync.
    sync(scratch.path(), "--delete src dst").expect(0);
    assert!(!scratch.join("dst/extra").exists());
    fs::write(scratch.join("dst/.thalweg-sync"), "thalweg sync 1\nsource 1-2\n").unwrap();
    fs::write(scratch.join("dst/extra"), "").unwrap();
    refuses("--delete src dst", "another file system");
    sync(scratch.path(), "--delete --force src dst").expect(0);
    assert!(!scratch.join("dst/extra").exists());
    sync(scratch.path(), "--delete src/a dst").expect(2).expect_said("not a directory");
    let many = "mkdir big small; for i in $(seq 150); do echo $i >big/$i; done; cp -a big all; rm big/?? big/???; rm -r dst; mv all dst";
    shell(scratch.path(), many).expect(0);
    refuses("--delete big dst", "entries would be deleted (limit: 75)");
    sync(scratch.path(), "--delete --max-delete 1000 big dst").expect(0);
}

#[test]
fn a_source_that_overlaps_the_destination_is_refused() {
    let scratch = pair();
    shell(scratch.path(), "ln -s src link; mkdir src/inside").expect(0);
    for words in ["src src", "src src/d", "src/d src", "link src", "src link/new/deep", "src/d/e ."]
    {
        for delete in ["", "--delete "] {
            let ran = sync(scratch.path(), &format!("{delete}{words}")).expect(1);
            ran.expect_said("overlaps the destination");
        }
    }
    assert_eq!(names(&scratch.join("src")), ["a", "a2", "d", "inside", "link"]);
}

#[test]
fn excluded_entries_are_protected_unless_they_are_to_go() {
    let scratch = pair();
    shell(scratch.path(), "mkdir -p dst/gone/keep; echo 1 >dst/gone/k.o; echo 2 >dst/gone/x; echo 3 >dst/m.o; echo 4 >src/n.o")
        .expect(0);
    sync(scratch.path(), "--delete --exclude *.o src dst").expect(0);
    assert_eq!(names(&scratch.join("dst/gone")), ["k.o"]);
    assert!(scratch.join("dst/m.o").exists() && !scratch.join("dst/n.o").exists());
    sync(scratch.path(), "--delete-excluded --exclude *.o src dst").expect(0);
    assert!(!scratch.join("dst/gone").exists() && !scratch.join("dst/m.o").exists());
}

#[test]
fn links_in_the_destination_lead_nowhere() {
    let scratch = pair();
    let line = "mkdir out; echo 1 >out/file; ln -s ../out dst/extra; rm -r dst/d; ln -s ../out dst/d; \
                rm dst/a; ln -s ../out/file dst/a";
    shell(scratch.path(), line).expect(0);
    sync(scratch.path(), "--delete src dst").expect(0);
    assert_eq!(fs::read_to_string(scratch.join("out/file")).unwrap(), "1\n");
    assert_eq!(names(&scratch.join("out")), ["file"]);
    shell(scratch.path(), "diff -r --no-dereference src dst -x .thalweg-sync").expect(0);
}

#[test]
fn a_checksum_finds_what_time_and_size_hide() {
    let scratch = pair();
    shell(scratch.path(), "echo 9 >dst/d/b; touch -r src/d/b dst/d/b; touch dst/a").expect(0);
    let plain = lines(&sync(scratch.path(), "-n src dst").expect(0));
    assert!(plain.iter().all(|line| !line.ends_with("d/b")), "{plain:?}");
    let dry = lines(&sync(scratch.path(), "-n --jobs 1 --checksum src dst").expect(0));
    let real = lines(&sync(scratch.path(), "-i --jobs 1 --checksum src dst").expect(0));
    assert_eq!(dry, real);
    assert!(real.contains(&">fc........ d/b".to_owned()), "{real:?}");
    shell(scratch.path(), "diff -r src dst").expect(0);
}

#[test]
fn several_sources_are_entries_of_their_own_and_nothing_beside_them_goes() {
    let scratch = Scratch::new();
    shell(scratch.path(), "mkdir -p a/x b dst/a/old dst/other; echo 1 >a/x/f; echo 2 >b/g")
        .expect(0);
    sync(scratch.path(), "--delete a b dst").expect(0);
    assert_eq!(names(&scratch.join("dst")), [".thalweg-sync", "a", "b", "other"]);
    assert_eq!(names(&scratch.join("dst/a")), ["x"]);
}

#[test]
fn the_log_and_the_json_name_each_change() {
    let scratch = pair();
    shell(scratch.path(), "echo n >src/new; echo y >dst/y").expect(0);
    let ran = sync(scratch.path(), "--json --delete --log log src dst").expect(0);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let said: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |path: &str| said.iter().find(|one| one["path"] == path).unwrap();
    assert_eq!(of("new")["change"], "create");
    assert_eq!(of("y")["change"], "delete");
    let end = said.last().unwrap();
    assert_eq!((&end["sync"]["created"], &end["sync"]["deleted"]), (&1.into(), &1.into()));
    let log = fs::read_to_string(scratch.join("log")).unwrap();
    assert!(log.contains(">f+++++++++ new") && log.contains("1 new, "), "{log}");
}
