//! Tests that a copy continues where an earlier run was interrupted.

use crate::support;

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
};
use support::{Listener, contents, copy, large, names, noise, problems};
use thalweg_core::Request;
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};
use thalweg_tree::{
    CopyOptions, Fsync, Journal, Preserve, Ranges, Target,
    journal::{Identity, JournalSource, SIZE},
};

const LEN: usize = 3_000_000;
const DONE: usize = 2_000_000;

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn identity(path: &Path) -> Identity {
    let meta = fs::metadata(path).unwrap();
    Identity {
        dev: meta.dev(),
        ino: meta.ino(),
        size: meta.len(),
        mtime: (meta.mtime(), meta.mtime_nsec() as u32),
        ctime: (meta.ctime(), meta.ctime_nsec() as u32),
    }
}

/// Creates a source, and the partial file and journal that a killed run would have left for `to`.
fn interrupted(at: &Path, boot_id: String) -> Journal {
    let bytes = noise(LEN, 1);
    fs::write(at.join("src"), &bytes).unwrap();
    // The bytes after the range that the journal records are wrong.
    let mut part = bytes[..DONE].to_vec();
    part.extend_from_slice(&noise(1000, 99));
    fs::write(at.join(".to.thalweg-part"), part).unwrap();
    let source = JournalSource::Local(identity(&at.join("src")));
    let done = Ranges::up_to(DONE as u64);
    let journal = Journal { source, done, boot_id, synced_before: None };
    fs::write(at.join(".to.thalweg-journal"), journal.to_bytes(SIZE)).unwrap();
    journal
}

fn resume() -> CopyOptions {
    CopyOptions { resume: true, ..CopyOptions::default() }
}

fn is_whole(at: &Path) {
    assert!(fs::read(at.join("to")).unwrap() == fs::read(at.join("src")).unwrap());
    assert_eq!(names(at), ["src", "to"]);
}

#[test]
fn a_part_with_its_journal_is_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    interrupted(at, boot_id());
    let report = copy(&at.join("src"), &at.join("to"), &resume());
    assert_eq!((report.resumed, report.bytes), (DONE as u64, (LEN - DONE) as u64));
    assert_eq!(report.continued, report.resumed);
    is_whole(at);
}

#[test]
fn after_a_restart_the_part_is_compared() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    interrupted(at, "another start of the machine".to_owned());
    let file = fs::File::options().write(true).open(at.join(".to.thalweg-part")).unwrap();
    file.write_all_at(b"?", 1_234_567).unwrap();
    drop(file);
    let report = copy(&at.join("src"), &at.join("to"), &resume());
    assert_eq!(report.resumed, 1_234_567);
    is_whole(at);
}

#[test]
fn a_part_without_a_readable_journal_is_compared() {
    let of_no_source = format!("{{\"schema\":1,\"done\":{LEN}}}");
    let long = "x".repeat(100_000);
    let unreadable = ["", "{", "\0\0\0\0", "null", &of_no_source, &long].map(Some);
    for text in unreadable.into_iter().chain([None]) {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        interrupted(at, boot_id());
        match text {
            None => fs::remove_file(at.join(".to.thalweg-journal")).unwrap(),
            Some(text) => fs::write(at.join(".to.thalweg-journal"), text).unwrap(),
        }
        let report = copy(&at.join("src"), &at.join("to"), &resume());
        assert_eq!(report.resumed, DONE as u64);
        is_whole(at);
    }
}

#[test]
fn a_part_of_another_source_or_a_lying_journal_is_not_built_upon() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    let mut journal = interrupted(at, boot_id());
    fs::write(at.join("src"), noise(LEN, 2)).unwrap();
    let report = copy(&at.join("src"), &at.join("to"), &resume());
    assert_eq!(report.resumed, 0);
    is_whole(at);
    fs::remove_file(at.join("to")).unwrap();
    // The journal records more bytes than the partial file has.
    interrupted(at, boot_id());
    journal.source = JournalSource::Local(identity(&at.join("src")));
    journal.done = Ranges::up_to(LEN as u64);
    fs::write(at.join(".to.thalweg-journal"), journal.to_bytes(SIZE)).unwrap();
    let report = copy(&at.join("src"), &at.join("to"), &resume());
    assert_eq!(report.resumed, DONE as u64);
    is_whole(at);
}

#[test]
fn without_resume_a_leftover_is_removed_and_a_living_part_is_not() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    interrupted(at, boot_id());
    let report = copy(&at.join("src"), &at.join("to"), &CopyOptions::default());
    assert_eq!((report.resumed, report.bytes), (0, LEN as u64));
    is_whole(at);
    interrupted(at, boot_id());
    let alive = fs::File::open(at.join(".to.thalweg-part")).unwrap();
    alive.lock().unwrap();
    let report = copy(&at.join("src"), &at.join("to"), &resume());
    assert_eq!((report.resumed, report.error_count), (0, 0), "{}", problems(&report));
    assert!(fs::read(at.join("to")).unwrap() == fs::read(at.join("src")).unwrap());
    assert!(names(at).contains(&".to.thalweg-part".to_owned()));
}

#[test]
fn an_error_leaves_a_part_that_the_next_run_goes_on_with() {
    let request = Request { only: Some("read-write".to_owned()), ..Request::default() };
    let options = CopyOptions { request, ..resume() };
    // If the source fails, the journal records how many bytes are complete. If the destination is full, the journal
    // cannot be written, so the next run compares the partial file with the source.
    for (call, errno) in [(Call::Pread, Errno::IO), (Call::Pwrite, Errno::NOSPC)] {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        fs::write(at.join("src"), noise(LEN, 7)).unwrap();
        let rule = Rule { call, nth: 5, effect: Effect::Errno(errno), repeat: true };
        let script = Script::new(vec![rule]);
        let first = script.run(|| copy(&at.join("src"), &at.join("to"), &options)).value;
        assert!(problems(&first).contains(call.name()), "{}", problems(&first));
        let journal = fs::read(at.join(".to.thalweg-journal"));
        let done = fs::metadata(at.join(".to.thalweg-part")).unwrap().len();
        assert!(done > 0);
        if call == Call::Pread {
            assert_eq!(Journal::parse(&journal.unwrap()).unwrap().done, Ranges::up_to(done));
        } else {
            assert!(journal.is_err());
        }
        let second = copy(&at.join("src"), &at.join("to"), &options);
        assert_eq!((second.resumed, second.bytes), (done, LEN as u64 - done));
        is_whole(at);
        // Without --resume, a failed copy removes its partial file.
        fs::remove_file(at.join("to")).unwrap();
        let plain = CopyOptions { resume: false, ..options.clone() };
        script.run(|| copy(&at.join("src"), &at.join("to"), &plain));
        assert_eq!(names(at), ["src"]);
    }
}

#[test]
fn after_a_sync_that_failed_the_next_run_starts_from_byte_0() {
    for call in ["fsync", "fdatasync"] {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        fs::write(at.join("src"), noise(LEN, 7)).unwrap();
        let fsync = if call == "fsync" { Fsync::Always } else { Fsync::Auto };
        if fsync == Fsync::Auto {
            fs::write(at.join("to"), "what is replaced").unwrap();
        }
        let options = CopyOptions { fsync, ..resume() };
        let rule = Rule::once(Call::Fsync, 1, Effect::Errno(Errno::IO));
        let script = Script::new(vec![rule]);
        let first = script.run(|| copy(&at.join("src"), &at.join("to"), &options)).value;
        assert!(problems(&first).contains(&format!("({call}: EIO)")), "{}", problems(&first));
        assert!(!names(at).iter().any(|name| name.starts_with('.')), "{:?}", names(at));
        let second = copy(&at.join("src"), &at.join("to"), &options);
        assert_eq!((second.resumed, second.bytes), (0, LEN as u64));
        is_whole(at);
    }
}

#[test]
fn a_stopped_tree_is_gone_on_with_and_done_files_are_skipped() {
    for preserve in [Preserve::usual(), Preserve::default()] {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        let src = at.join("src");
        fs::create_dir_all(src.join("sub/deep")).unwrap();
        for n in 0..40 {
            let dir = ["", "sub", "sub/deep"][n % 3];
            let len = if n % 10 == 0 { large() } else { n * 100 };
            fs::write(src.join(dir).join(format!("f{n}")), noise(len, n as u64)).unwrap();
        }
        // If times are not preserved, a copy counts as complete only if it is newer than its source.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let options = CopyOptions { recursive: true, preserve, ..resume() };
        let listener = Listener { stop_after: Some(25), ..Listener::default() };
        let sources = [src.clone()];
        let first = thalweg_tree::copy(&sources, &at.join("to"), &options, &listener).unwrap();
        assert!(first.halted.is_some());
        assert_eq!(names(at), [".to.thalweg-part", "src"]);
        let second = copy(&src, &at.join("to"), &options);
        assert_eq!(second.error_count, 0, "{}", problems(&second));
        assert!(second.skipped > 0 && second.skipped + second.files == 40, "{second:?}");
        assert_eq!(contents(&src), contents(&at.join("to")));
        is_named(at);
        // Another copy into the complete tree moves no bytes.
        let exact = CopyOptions { target: Target::Exact, ..options };
        let third = copy(&src, &at.join("to"), &exact);
        assert_eq!((third.skipped, third.bytes), (40, 0));
    }
}

/// Creates a stopped copy with these files in its staging directory. Two of the files lost their data but kept size and
/// time. This can happen in a power failure, if the file system wrote its journal but not the data.
fn cut_off(at: &Path, journal: impl FnOnce(&mut Journal)) {
    let (src, stage) = (at.join("src"), at.join(".to.thalweg-part"));
    fs::create_dir_all(src.join("sub")).unwrap();
    for (n, name) in ["sub/lost", "sub/kept", "sub/large"].into_iter().enumerate() {
        let len = if name == "sub/large" { large() } else { 5000 };
        fs::write(src.join(name), noise(len, n as u64)).unwrap();
    }
    let whole = CopyOptions { target: Target::Exact, ..CopyOptions::archive() };
    copy(&src, &at.join("copy"), &whole);
    fs::rename(at.join("copy"), &stage).unwrap();
    for lost in ["sub/lost", "sub/large"] {
        let file = fs::File::options().write(true).open(stage.join(lost)).unwrap();
        let meta = file.metadata().unwrap();
        file.write_all_at(&vec![0; meta.len() as usize], 0).unwrap();
        file.set_modified(meta.modified().unwrap()).unwrap();
    }
    let source = JournalSource::Local(identity(&src));
    let done = Ranges::default();
    let mut text = Journal { source, done, boot_id: boot_id(), synced_before: None };
    journal(&mut text);
    fs::write(stage.join(".thalweg-journal"), text.to_bytes(SIZE)).unwrap();
    fs::set_permissions(&stage, fs::Permissions::from_mode(0o700)).unwrap();
}

const ANOTHER_BOOT: &str = "another start of the machine";

#[test]
fn after_a_restart_the_files_of_a_stage_are_compared() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    cut_off(at, |journal| ANOTHER_BOOT.clone_into(&mut journal.boot_id));
    let options = CopyOptions { resume: true, ..CopyOptions::archive() };
    let report = copy(&at.join("src"), &at.join("to"), &options);
    assert_eq!((report.error_count, report.skipped, report.files), (0, 1, 2), "{report:?}");
    assert_eq!(contents(&at.join("src")), contents(&at.join("to")));
    is_named(at);
}

#[test]
fn what_was_synced_before_a_restart_is_not_read_again() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    // The journal says that all files were synced. If the copy nevertheless read a file, it would notice the lost data.
    cut_off(at, |journal| {
        ANOTHER_BOOT.clone_into(&mut journal.boot_id);
        journal.synced_before = Some((i64::MAX, 0));
    });
    let options = CopyOptions { resume: true, ..CopyOptions::archive() };
    let report = copy(&at.join("src"), &at.join("to"), &options);
    assert_eq!((report.error_count, report.skipped, report.files), (0, 3, 0), "{report:?}");
}

#[test]
fn a_stage_without_a_journal_proves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    cut_off(at, |_| {});
    fs::remove_file(at.join(".to.thalweg-part/.thalweg-journal")).unwrap();
    let options = CopyOptions { resume: true, ..CopyOptions::archive() };
    let report = copy(&at.join("src"), &at.join("to"), &options);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(contents(&at.join("src")), contents(&at.join("to")));
}

fn is_named(at: &Path) {
    assert_eq!(names(at), ["src", "to"]);
}

#[test]
fn a_half_written_small_file_in_a_stage_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path();
    fs::create_dir_all(at.join("src/sub")).unwrap();
    fs::write(at.join("src/sub/f"), "the whole text").unwrap();
    fs::write(at.join("src/empty"), "").unwrap();
    fs::create_dir_all(at.join(".to.thalweg-part/sub")).unwrap();
    fs::write(at.join(".to.thalweg-part/sub/f"), "the wh").unwrap();
    fs::write(at.join(".to.thalweg-part/sub/.gone.thalweg-part"), "left").unwrap();
    fs::write(at.join(".to.thalweg-part/sub/.gone.thalweg-journal"), "left").unwrap();
    let options = CopyOptions { recursive: true, ..resume() };
    let report = copy(&at.join("src"), &at.join("to"), &options);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(contents(&at.join("src")), contents(&at.join("to")));
}

#[test]
fn a_done_file_gets_the_attributes_it_lacks_and_is_not_touched_otherwise() {
    let place = tempfile::tempdir().unwrap();
    let (source, done) = (place.path().join("src"), place.path().join("to"));
    fs::write(&source, noise(5000, 3)).unwrap();
    let options = CopyOptions { preserve: Preserve::all(), ..resume() };
    copy(&source, &done, &options);
    let changed = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
    let before = fs::metadata(&done).unwrap();
    let again = copy(&source, &done, &options);
    assert_eq!((again.resumed, again.continued), (5000, 0), "nothing was left to continue");
    assert_eq!(changed(&before), changed(&fs::metadata(&done).unwrap()));
    fs::set_permissions(&done, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(copy(&source, &done, &options).resumed, 5000);
    assert_eq!(fs::metadata(&done).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(&done).unwrap().modified().unwrap(), before.modified().unwrap());
}

#[test]
fn a_journal_is_gone_before_the_bytes_it_counts_are_and_before_its_part_has_its_name() {
    let place = tempfile::tempdir().unwrap();
    let at = place.path().to_owned();
    let journal = at.join(".to.thalweg-journal");
    let is_gone = || {
        let journal = journal.clone();
        move || assert!(!journal.exists())
    };
    let request = Request { only: Some("read-write".to_owned()), ..Request::default() };
    let options = CopyOptions { request, ..resume() };
    for is_left_alone in [false, true] {
        interrupted(&at, boot_id());
        fs::write(at.join("other"), noise(LEN, 2)).unwrap();
        if is_left_alone {
            fs::remove_file(at.join(".to.thalweg-part")).unwrap();
        }
        // The copy writes no byte of the other source before its first call of this kind.
        let first = if is_left_alone { Call::Pwrite } else { Call::Ftruncate };
        let script = Script::new(Vec::new()).meanwhile(first, 1, is_gone());
        let script = script.meanwhile(Call::Rename, 1, is_gone());
        let ran = script.run(|| copy(&at.join("other"), &at.join("to"), &options));
        assert_eq!(ran.value.error_count, 0, "{}", problems(&ran.value));
        assert!(ran.calls[first] > 0 && ran.calls[Call::Rename] > 0);
        assert!(fs::read(at.join("to")).unwrap() == fs::read(at.join("other")).unwrap());
        assert_eq!(names(&at), ["other", "src", "to"]);
        fs::remove_file(at.join("to")).unwrap();
    }
}
