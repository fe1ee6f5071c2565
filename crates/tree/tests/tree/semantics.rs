//! Tests that a copy does what `cp` does with names, existing files, links and refusals.

use crate::support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};
use support::{Listener, contents, copy, large, names, noise, problems, recursive, walk};
use thalweg_tree::{
    Backup, CopyOptions, Dereference, Ending, Error, Preserve, Target, TreeReport, Update, When,
};

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_owned();
    (place, path)
}

fn copy_all(
    sources: &[PathBuf],
    destination: &Path,
    options: &CopyOptions,
) -> Result<TreeReport, Error> {
    thalweg_tree::copy(sources, destination, options, &())
}

#[test]
fn a_file_gets_the_name_or_goes_into_the_directory() {
    let (_keep, at) = place();
    for size in [0, 1, 4095, 4096, 4097, 256 << 10, (256 << 10) + 1, 3 << 20] {
        let bytes = noise(size, size as u64 + 1);
        fs::write(at.join("a"), &bytes).unwrap();
        let _ = fs::remove_dir_all(at.join("dir"));
        fs::create_dir(at.join("dir")).unwrap();
        let report = copy(&at.join("a"), &at.join("dir"), &CopyOptions::default());
        assert_eq!((report.files, report.bytes), (1, size as u64));
        assert_eq!(report.ending(), Ending::Done, "{}", problems(&report));
        copy(&at.join("a"), &at.join("dir/b"), &CopyOptions::default());
        assert_eq!(names(&at.join("dir")), ["a", "b"]);
        assert!(fs::read(at.join("dir/a")).unwrap() == bytes);
        assert!(fs::read(at.join("dir/b")).unwrap() == bytes);
    }
}

#[test]
fn a_tree_is_made_new_or_goes_into_the_directory_or_is_merged() {
    let (_keep, at) = place();
    fs::create_dir_all(at.join("src/sub/deep")).unwrap();
    fs::write(at.join("src/f"), "one").unwrap();
    fs::write(at.join("src/sub/g"), noise(large(), 3)).unwrap();
    let report = copy(&at.join("src"), &at.join("new"), &recursive());
    assert_eq!((report.files, report.dirs), (2, 3));
    assert_eq!(contents(&at.join("src")), contents(&at.join("new")));
    copy(&at.join("src"), &at.join("new"), &recursive());
    assert_eq!(contents(&at.join("src")), contents(&at.join("new/src")));
    fs::create_dir(at.join("old")).unwrap();
    fs::write(at.join("old/own"), "kept").unwrap();
    fs::write(at.join("old/f"), "replaced").unwrap();
    let exact = CopyOptions { target: Target::Exact, ..recursive() };
    copy(&at.join("src"), &at.join("old"), &exact);
    assert_eq!(names(&at.join("old")), ["f", "own", "sub"]);
    assert_eq!(fs::read(at.join("old/f")).unwrap(), b"one");
    copy(&at.join("src/."), &at.join("old"), &recursive());
    assert_eq!(names(&at.join("old")), ["f", "own", "sub"]);
}

#[test]
fn several_sources_need_a_directory_and_different_names() {
    let (_keep, at) = place();
    for dir in ["x", "y", "to"] {
        fs::create_dir(at.join(dir)).unwrap();
        fs::write(at.join(dir).join("f"), dir).unwrap();
    }
    let files = [at.join("x/f"), at.join("y/f")];
    let error = copy_all(&files, &at.join("none"), &CopyOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
    let report = copy_all(&files, &at.join("to"), &CopyOptions::default()).unwrap();
    assert_eq!(fs::read(at.join("to/f")).unwrap(), b"x");
    assert!(problems(&report).contains("will not overwrite"), "{}", problems(&report));
    assert_eq!(report.ending(), Ending::Partial);
    fs::create_dir_all(at.join("x/d")).unwrap();
    fs::create_dir_all(at.join("y/d")).unwrap();
    fs::write(at.join("x/d/1"), "1").unwrap();
    fs::write(at.join("y/d/2"), "2").unwrap();
    let trees = [at.join("x/d"), at.join("y/d"), at.join("x/d")];
    let report = copy_all(&trees, &at.join("to"), &recursive()).unwrap();
    assert_eq!(names(&at.join("to/d")), ["1", "2"]);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
}

#[test]
fn directories_need_recursion_and_do_not_go_into_themselves() {
    let (_keep, at) = place();
    fs::create_dir_all(at.join("d/sub")).unwrap();
    let report = copy(&at.join("d"), &at.join("e"), &CopyOptions::default());
    assert!(
        problems(&report).contains("is a directory (-r not specified)"),
        "{}",
        problems(&report)
    );
    for to in ["d/sub/new", "d/new", "d"] {
        let report = copy(&at.join("d"), &at.join(to), &recursive());
        assert!(problems(&report).contains("into itself"), "{to}: {}", problems(&report));
    }
    symlink(at.join("d"), at.join("link")).unwrap();
    let report = copy(&at.join("d"), &at.join("link/x"), &recursive());
    assert!(problems(&report).contains("into itself"));
    // Each of the four copies contains the entries that existed before it, but not itself. `cp -r` of coreutils 9.1
    // creates an equal tree.
    assert_eq!(walk(&at.join("d")).len(), 32);
    let exact = CopyOptions { target: Target::Exact, ..recursive() };
    let report = copy(&at.join("d"), &at.join("d"), &exact);
    assert!(problems(&report).contains("same file"), "{}", problems(&report));
}

#[test]
fn a_file_is_not_copied_onto_itself_by_any_name() {
    let (_keep, at) = place();
    fs::write(at.join("a"), "a").unwrap();
    fs::hard_link(at.join("a"), at.join("hard")).unwrap();
    symlink("a", at.join("soft")).unwrap();
    for to in ["a", "hard", "soft", "./a"] {
        let report = copy(&at.join("a"), &at.join(to), &CopyOptions::default());
        assert!(problems(&report).contains("same file"), "{to}: {}", problems(&report));
    }
    assert_eq!(fs::read(at.join("a")).unwrap(), b"a");
}

#[test]
fn kinds_do_not_replace_each_other() {
    let (_keep, at) = place();
    fs::create_dir_all(at.join("to/x")).unwrap();
    fs::write(at.join("x"), "file").unwrap();
    fs::write(at.join("to/y"), "file").unwrap();
    fs::create_dir(at.join("y")).unwrap();
    let report = copy(&at.join("x"), &at.join("to"), &CopyOptions::default());
    assert!(
        problems(&report).contains("cannot overwrite directory with non-directory"),
        "{}",
        problems(&report)
    );
    let report = copy(&at.join("y"), &at.join("to"), &recursive());
    assert!(
        problems(&report).contains("cannot overwrite non-directory with directory"),
        "{}",
        problems(&report)
    );
}

#[test]
fn slashes_at_the_end_mean_a_directory() {
    let (_keep, at) = place();
    fs::write(at.join("f"), "f").unwrap();
    fs::create_dir(at.join("d")).unwrap();
    let slashed = at.join("none/");
    assert!(copy_all(&[at.join("f")], &slashed, &CopyOptions::default()).is_err());
    assert!(copy_all(&[at.join("d/")], &slashed, &recursive()).is_ok());
    assert!(at.join("none").is_dir());
    let into = CopyOptions { target: Target::Directory, ..CopyOptions::default() };
    assert!(copy_all(&[at.join("f")], &at.join("f"), &into).is_err());
    assert!(copy_all(&[at.join("f")], &at.join("gone"), &into).is_err());
    assert!(copy_all(&[at.join("f")], &at.join("d"), &into).is_ok());
}

#[test]
fn links_are_followed_as_asked() {
    let (_keep, at) = place();
    fs::create_dir(at.join("src")).unwrap();
    fs::write(at.join("src/real"), "real").unwrap();
    symlink("real", at.join("src/link")).unwrap();
    symlink("nowhere", at.join("src/dangling")).unwrap();
    symlink("src", at.join("root")).unwrap();
    let with = |dereference| CopyOptions { dereference: Some(dereference), ..recursive() };
    let kind = |path: &str| fs::symlink_metadata(at.join(path)).unwrap().file_type();

    copy(&at.join("root"), &at.join("p"), &with(Dereference::Never));
    assert!(kind("p").is_symlink());
    let report = copy(&at.join("root"), &at.join("h"), &with(Dereference::CommandLine));
    assert!(kind("h").is_dir() && kind("h/link").is_symlink() && kind("h/dangling").is_symlink());
    assert_eq!(report.links, 2);
    let report = copy(&at.join("root"), &at.join("l"), &with(Dereference::Always));
    assert!(kind("l/link").is_file() && fs::symlink_metadata(at.join("l/dangling")).is_err());
    assert!(problems(&report).contains("dangling"), "{}", problems(&report));
    // Without -r a symbolic link is followed. With -r it is copied as a link.
    copy(&at.join("src/link"), &at.join("f"), &CopyOptions::default());
    assert!(kind("f").is_file());
    copy(&at.join("src/link"), &at.join("g"), &recursive());
    assert!(kind("g").is_symlink());
}

#[test]
fn a_cycle_of_followed_links_ends() {
    let (_keep, at) = place();
    fs::create_dir_all(at.join("src/sub")).unwrap();
    symlink("..", at.join("src/sub/up")).unwrap();
    fs::write(at.join("src/sub/f"), "f").unwrap();
    let always = CopyOptions { dereference: Some(Dereference::Always), ..recursive() };
    let report = copy(&at.join("src"), &at.join("to"), &always);
    assert!(problems(&report).contains("cyclic symbolic link"), "{}", problems(&report));
    assert_eq!(names(&at.join("to/sub")), ["f"]);
}

#[test]
fn existing_links_are_written_through_unless_they_dangle() {
    let (_keep, at) = place();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("new"), "new").unwrap();
    fs::write(at.join("d/old"), "old").unwrap();
    symlink("d/old", at.join("link")).unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    copy(&at.join("new"), &at.join("link"), &CopyOptions::default());
    assert!(fs::symlink_metadata(at.join("link")).unwrap().file_type().is_symlink());
    assert_eq!(fs::read(at.join("d/old")).unwrap(), b"new");
    let report = copy(&at.join("new"), &at.join("dangling"), &CopyOptions::default());
    assert!(problems(&report).contains("dangling"), "{}", problems(&report));
    assert!(fs::symlink_metadata(at.join("nowhere")).is_err());
}

#[test]
fn existing_files_are_spared_as_asked() {
    let (_keep, at) = place();
    let set = |name: &str, text: &str, age: u64| {
        fs::write(at.join(name), text).unwrap();
        let file = fs::File::options().write(true).open(at.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    };
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    set("old", "old", 100);
    set("new", "new", 0);
    let update = CopyOptions { update: Update::Older, ..CopyOptions::default() };
    assert_eq!(copy(&at.join("old"), &at.join("new"), &update).skipped, 1);
    assert_eq!(read("new"), "new");
    set("older", "older", 200);
    copy(&at.join("old"), &at.join("older"), &update);
    assert_eq!(read("older"), "old");
    let keep = CopyOptions { no_clobber: true, ..CopyOptions::default() };
    assert_eq!(copy(&at.join("old"), &at.join("new"), &keep).skipped, 1);
    assert_eq!(read("new"), "new");
    let ask = CopyOptions { interactive: true, verbose: true, ..CopyOptions::default() };
    let listener = Listener::default();
    let sources = [at.join("old")];
    thalweg_tree::copy(&sources, &at.join("new"), &ask, &listener).unwrap();
    assert_eq!(read("new"), "new");
    listener.answer.store(true, Ordering::Relaxed);
    thalweg_tree::copy(&sources, &at.join("new"), &ask, &listener).unwrap();
    assert_eq!(read("new"), "old");
    thalweg_tree::copy(&sources, &at.join("fresh"), &ask, &listener).unwrap();
    assert_eq!(listener.asked.load(Ordering::Relaxed), 2);
    let told = listener.told.lock().unwrap().join("\n");
    assert!(told.contains("Declined") && told.contains("-> '"), "{told}");
}

#[test]
fn what_is_replaced_is_kept_as_a_backup() {
    let (_keep, at) = place();
    fs::write(at.join("new"), "new").unwrap();
    fs::create_dir(at.join("d")).unwrap();
    let run = |backup| {
        fs::write(at.join("d/f"), "old").unwrap();
        let options = CopyOptions { backup, ..CopyOptions::default() };
        let report = copy(&at.join("new"), &at.join("d/f"), &options);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(fs::read(at.join("d/f")).unwrap(), b"new");
    };
    run(Backup::Simple);
    assert_eq!(names(&at.join("d")), ["f", "f~"]);
    run(Backup::Numbered);
    run(Backup::Numbered);
    run(Backup::Existing);
    assert_eq!(names(&at.join("d")), ["f", "f.~1~", "f.~2~", "f.~3~", "f~"]);
    assert_eq!(fs::read(at.join("d/f.~3~")).unwrap(), b"old");
    let options = CopyOptions { backup: Backup::Simple, ..CopyOptions::default() };
    let report = copy(&at.join("d/f~"), &at.join("d/f"), &options);
    assert!(problems(&report).contains("destroy the source"), "{}", problems(&report));
}

#[test]
fn a_link_that_is_kept_as_a_backup_is_not_written_through() {
    let (_keep, at) = place();
    fs::write(at.join("new"), "new").unwrap();
    fs::write(at.join("target"), "old").unwrap();
    fs::set_permissions(at.join("new"), fs::Permissions::from_mode(0o640)).unwrap();
    for to in ["target", "nowhere"] {
        symlink(to, at.join("link")).unwrap();
        let options = CopyOptions { backup: Backup::Simple, ..CopyOptions::default() };
        let report = copy(&at.join("new"), &at.join("link"), &options);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(fs::read_link(at.join("link~")).unwrap(), Path::new(to));
        let made = fs::symlink_metadata(at.join("link")).unwrap();
        assert!(made.is_file() && made.mode() & 0o777 == 0o640, "{:o}", made.mode());
        assert_eq!(fs::read(at.join("target")).unwrap(), b"old");
        fs::remove_file(at.join("link")).unwrap();
    }
}

#[test]
fn a_replaced_file_keeps_its_mode_and_a_reader_keeps_the_old_one() {
    let (_keep, at) = place();
    fs::write(at.join("new"), "new contents").unwrap();
    fs::write(at.join("old"), "old").unwrap();
    fs::set_permissions(at.join("old"), fs::Permissions::from_mode(0o640)).unwrap();
    let open = fs::File::open(at.join("old")).unwrap();
    copy(&at.join("new"), &at.join("old"), &CopyOptions::default());
    assert_eq!(fs::metadata(at.join("old")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(std::io::read_to_string(open).unwrap(), "old");
    let ino = fs::metadata(at.join("old")).unwrap().ino();
    fs::write(at.join("new"), "x").unwrap();
    let inplace = CopyOptions { inplace: true, ..CopyOptions::default() };
    copy(&at.join("new"), &at.join("old"), &inplace);
    assert_eq!(fs::metadata(at.join("old")).unwrap().ino(), ino);
    assert_eq!(fs::read(at.join("old")).unwrap(), b"x");
}

#[test]
fn special_files_are_made_and_read_as_asked() {
    let (_keep, at) = place();
    fs::create_dir(at.join("src")).unwrap();
    let fifo = rustix::fs::mkfifoat(rustix::fs::CWD, at.join("src/fifo"), 0o640.into());
    fifo.unwrap();
    fs::hard_link(at.join("src/fifo"), at.join("src/other name")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at.join("src/socket")).unwrap();
    for dry_run in [true, false] {
        let options = CopyOptions { dry_run, ..CopyOptions::archive() };
        let report = copy(&at.join("src"), &at.join("to"), &options);
        assert_eq!((report.specials, report.links), (2, 1), "{}", problems(&report));
    }
    let kind = |name: &str| fs::symlink_metadata(at.join("to").join(name)).unwrap().file_type();
    assert!(kind("fifo").is_fifo() && kind("socket").is_socket());
    drop(socket);
    // A file cannot replace a device.
    fs::write(at.join("f"), "into the void").unwrap();
    let report = copy(&at.join("f"), Path::new("/dev/null"), &CopyOptions::default());
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn files_that_lie_about_their_size_are_copied_to_their_end() {
    let (_keep, at) = place();
    for path in ["/proc/cpuinfo", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"]
    {
        let Ok(truth) = fs::read(path) else { continue };
        for options in [
            CopyOptions::default(),
            CopyOptions { sparse: When::Always, ..CopyOptions::default() },
            CopyOptions { sparse: When::Never, ..CopyOptions::default() },
        ] {
            // Like its source, the first copy may be read-only, so only a copy with `force` can replace it.
            let options = CopyOptions { force: true, ..options };
            let report = copy(Path::new(path), &at.join("copy"), &options);
            assert_eq!(report.error_count, 0, "{}", problems(&report));
            let copied = fs::read(at.join("copy")).unwrap();
            let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
            if path.contains("self") {
                assert!(!copied.is_empty());
            } else if path.contains("cpuinfo") {
                // A clock speed, and the number of its digits, may change between two reads.
                assert_eq!(lines(&copied), lines(&truth), "{path}");
            } else {
                assert!(copied == truth, "{path}");
            }
        }
    }
}

#[test]
fn a_dry_run_changes_nothing_and_prints_everything() {
    let (_keep, at) = place();
    fs::create_dir_all(at.join("src/sub")).unwrap();
    fs::write(at.join("src/sub/f"), "f").unwrap();
    fs::write(at.join("src/g"), "g").unwrap();
    symlink("g", at.join("src/l")).unwrap();
    let options = CopyOptions { dry_run: true, verbose: true, ..CopyOptions::archive() };
    let listener = Listener::default();
    let report =
        thalweg_tree::copy(&[at.join("src")], &at.join("to"), &options, &listener).unwrap();
    assert_eq!((report.files, report.dirs, report.links, report.error_count), (2, 2, 1, 0));
    assert_eq!(names(&at), ["src"]);
    let told = listener.told.lock().unwrap();
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told.iter().any(|line| line.contains("to/sub/f")), "{told:?}");
}

#[test]
fn one_file_system_is_copied_whole() {
    let (_keep, at) = place();
    fs::create_dir(at.join("src")).unwrap();
    fs::write(at.join("src/f"), "f").unwrap();
    let options = CopyOptions { one_file_system: true, ..recursive() };
    let report = copy(&at.join("src"), &at.join("to"), &options);
    assert_eq!((report.files, report.dirs), (1, 1));
}

#[test]
fn names_of_unfinished_copies_are_not_copied() {
    let (_keep, at) = place();
    fs::create_dir(at.join("src")).unwrap();
    fs::write(at.join("src/big"), noise(large(), 9)).unwrap();
    fs::write(at.join("src/.big.thalweg-part"), "somebody's").unwrap();
    let report = copy(&at.join("src"), &at.join("to"), &recursive());
    assert!(problems(&report).contains("reserved"), "{}", problems(&report));
    assert_eq!(names(&at.join("to")), ["big"]);
}

#[test]
fn set_id_bits_come_only_with_the_mode_and_the_sticky_bit_always() {
    let (_keep, at) = place();
    fs::create_dir(at.join("src")).unwrap();
    fs::write(at.join("src/f"), "f").unwrap();
    fs::set_permissions(at.join("src/f"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(at.join("src"), fs::Permissions::from_mode(0o1755)).unwrap();
    let mode = |path: &str| fs::metadata(at.join(path)).unwrap().mode() & 0o7777;
    copy(&at.join("src"), &at.join("plain"), &recursive());
    assert_eq!((mode("plain"), mode("plain/f")), (0o1755, 0o755));
    let options = CopyOptions { preserve: Preserve::usual(), ..recursive() };
    copy(&at.join("src"), &at.join("kept"), &options);
    assert_eq!((mode("kept"), mode("kept/f")), (0o1755, 0o4755));
}

/// Appends to the source in the `left`-th call of `go_on`.
struct Meddler {
    path: PathBuf,
    left: std::sync::atomic::AtomicU32,
}

impl thalweg_tree::Events for Meddler {
    fn go_on(&self) -> Result<(), thalweg_core::Cancelled> {
        let before = self.left.fetch_sub(1, Ordering::Relaxed);
        if before == 1 {
            use std::io::Write;
            let mut file = fs::File::options().append(true).open(&self.path).unwrap();
            file.write_all(b"more").unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_source_that_changes_is_copied_and_reported() {
    let (_keep, at) = place();
    fs::write(at.join("f"), noise(2_000_000, 1)).unwrap();
    // The first call of `go_on` precedes the opening of the file. The second call comes while its bytes are moved.
    let meddler = Meddler { path: at.join("f"), left: 2.into() };
    let sources = [at.join("f")];
    let options = CopyOptions { verify: Some(thalweg_tree::Hash::Xxh3), ..CopyOptions::default() };
    let report = thalweg_tree::copy(&sources, &at.join("g"), &options, &meddler).unwrap();
    assert_eq!((report.changed, report.files), (1, 1), "{}", problems(&report));
    assert_eq!(report.ending(), Ending::Partial);
    assert!(at.join("g").exists());
}

#[test]
fn a_rate_is_kept() {
    let (_keep, at) = place();
    fs::write(at.join("f"), noise(100_000, 1)).unwrap();
    fs::write(at.join("g"), noise(400_000, 1)).unwrap();
    fs::create_dir(at.join("to")).unwrap();
    let options = CopyOptions { limit: Some(2_500_000), ..CopyOptions::default() };
    let began = std::time::Instant::now();
    copy_all(&[at.join("f"), at.join("g")], &at.join("to"), &options).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(190));
}
