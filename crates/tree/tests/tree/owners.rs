//! Tests entries that another user has created under a name that a copy uses. The copy must not adopt, follow, write or
//! remove them. Its result must be the same as without them.

use crate::support;

use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, Uid, chownat, mknodat, renameat_with};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use support::{Listener, large, noise, problems, scratch, skip};
use thalweg_tree::{CopyOptions, TreeReport};

const OTHER: u32 = 65534;
/// Time after which a copy counts as hanging. A copy of this size takes far less.
const HANGS: Duration = Duration::from_secs(60);

/// Returns `true` if this process can give files to another user. Otherwise reports that the test `what` is skipped.
fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(what, "only root can plant files of another user");
    }
    is_root
}

fn give_away(path: &Path) {
    chownat(CWD, path, Some(Uid::from_raw(OTHER)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

fn resuming() -> CopyOptions {
    CopyOptions { resume: true, ..CopyOptions::archive() }
}

/// Copies `src` to `to`. Returns the report, and the events about leftovers that were not used. Fails if the copy
/// hangs.
fn copied(at: &Path, options: &CopyOptions, stop_after: Option<u64>) -> (TreeReport, String) {
    let (sender, receiver) = mpsc::channel();
    let (src, to, options) = (at.join("src"), at.join("to"), options.clone());
    thread::spawn(move || {
        let listener = Listener { stop_after, ..Listener::default() };
        let report = thalweg_tree::copy(&[src], &to, &options, &listener).unwrap();
        let told = listener.told.into_inner().unwrap();
        let left: Vec<_> = told.into_iter().filter(|told| told.contains("LeftAlone")).collect();
        sender.send((report, left.join("\n"))).unwrap();
    });
    receiver.recv_timeout(HANGS).expect("the copy hangs")
}

/// Creates a source, and a staging directory of another user, with files that look complete by size and time.
fn plant_stage(at: &Path) {
    for (top, text) in [("src", "ours"), (".to.thalweg-part", "evil")] {
        fs::create_dir_all(at.join(top).join("bin")).unwrap();
        let tool = at.join(top).join("bin/tool");
        fs::write(&tool, text).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::options().write(true).open(tool).unwrap().set_modified(time).unwrap();
    }
    chmod(&at.join("src/bin/tool"), 0o4755);
    chmod(&at.join(".to.thalweg-part"), 0o755);
}

fn expect_own_tree(at: &Path, planted_is_left: bool) {
    let tool = at.join("to/bin/tool");
    assert_eq!(fs::read_to_string(&tool).unwrap(), "ours");
    let found = fs::metadata(&tool).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o4755));
    assert_eq!(at.join(".to.thalweg-part/bin/tool").exists(), planted_is_left);
    fs::remove_dir_all(at.join("to")).unwrap();
}

#[test]
fn a_staging_directory_of_another_user_or_writable_by_one_is_neither_adopted_nor_removed() {
    if !is_root("a planted staging directory") {
        return;
    }
    for resume in [true, false] {
        let options = CopyOptions { resume, ..CopyOptions::archive() };
        let place = scratch();
        let (at, planted) = (place.path(), place.path().join(".to.thalweg-part"));
        plant_stage(at);
        give_away(&planted);
        let (report, left) = copied(at, &options, None);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert!(left.contains("Owner(65534)"), "{left}");
        expect_own_tree(at, true);
        chownat(CWD, &planted, Some(Uid::ROOT), None, AtFlags::empty()).unwrap();
        for mode in [0o775, 0o757, 0o1777] {
            chmod(&planted, mode);
            let (_, left) = copied(at, &options, None);
            assert!(left.contains("Mode("), "{left}");
            expect_own_tree(at, true);
        }
        fs::rename(&planted, at.join("moved")).unwrap();
        symlink("moved", &planted).unwrap();
        let (_, left) = copied(at, &options, None);
        assert!(left.contains("NotADirectory"), "{left}");
        expect_own_tree(at, true);
        fs::remove_file(&planted).unwrap();
        fifo(&planted);
        copied(at, &options, None);
        expect_own_tree(at, false);
    }
}

#[test]
fn a_partial_file_that_another_user_keeps_open_does_not_become_the_copy() {
    if !is_root("a planted partial file") {
        return;
    }
    let place = scratch();
    let (at, part) = (place.path(), place.path().join(".to.thalweg-part"));
    fs::write(at.join("src"), noise(large(), 1)).unwrap();
    chmod(&at.join("src"), 0o600);
    fs::write(&part, "").unwrap();
    give_away(&part);
    let kept = fs::File::options().read(true).write(true).open(&part).unwrap();
    let (report, left) = copied(at, &resuming(), None);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert!(left.contains(".to.thalweg-part") && left.contains("Owner(65534)"), "{left}");
    let found = fs::metadata(at.join("to")).unwrap();
    assert_ne!(found.ino(), kept.metadata().unwrap().ino());
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o600));
    assert_eq!(kept.metadata().unwrap().len(), 0);
    assert_eq!(fs::read(at.join("to")).unwrap(), noise(large(), 1));
}

#[test]
fn a_fifo_or_a_hard_link_with_the_name_of_the_journal_neither_blocks_nor_is_written() {
    let place = scratch();
    let (at, journal) = (place.path(), place.path().join(".to.thalweg-journal"));
    fs::write(at.join("src"), noise(large() * 4, 2)).unwrap();
    let interrupted = || {
        let (report, left) = copied(at, &resuming(), Some(1));
        assert!(report.halted.is_some() && left.contains("thalweg-journal"), "{left}");
    };
    fifo(&journal);
    interrupted();
    assert!(fs::symlink_metadata(&journal).unwrap().file_type().is_fifo());
    fs::remove_file(&journal).unwrap();
    fs::write(at.join("victim"), "a file of ours").unwrap();
    fs::hard_link(at.join("victim"), &journal).unwrap();
    interrupted();
    assert_eq!(fs::read_to_string(at.join("victim")).unwrap(), "a file of ours");
    fs::remove_file(&journal).unwrap();
    symlink("victim", &journal).unwrap();
    interrupted();
    let (report, _) = copied(at, &resuming(), None);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(fs::read(at.join("to")).unwrap(), noise(large() * 4, 2));
    assert_eq!(fs::read_to_string(at.join("victim")).unwrap(), "a file of ours");
}

#[test]
fn a_partial_file_is_closed_to_others_until_the_copy_is_whole() {
    let place = scratch();
    let at = place.path();
    fs::write(at.join("src"), noise(large() * 4, 3)).unwrap();
    fs::write(at.join("plain"), "").unwrap();
    for source_mode in [0o666, 0o777, 0o444] {
        chmod(&at.join("src"), source_mode);
        let options = CopyOptions { resume: true, ..CopyOptions::default() };
        let (report, left) = copied(at, &options, Some(1));
        assert!(report.halted.is_some() && left.is_empty(), "{left}");
        assert_eq!(mode(&at.join(".to.thalweg-part")), 0o600);
        let (report, left) = copied(at, &options, None);
        assert!(report.error_count == 0 && left.is_empty(), "{left}");
        let umask = !mode(&at.join("plain")) & 0o022;
        assert_eq!(mode(&at.join("to")), source_mode & !umask);
        fs::remove_file(at.join("to")).unwrap();
    }
}

#[test]
fn a_fleet_does_not_work_in_a_directory_that_another_user_made_or_may_change() {
    use thalweg_tree::fleet;
    if !is_root("a planted fleet directory") {
        return;
    }
    let place = scratch();
    let at = place.path();
    plant_stage(at);
    let planted = at.join(".to.thalweg-fleet");
    fs::create_dir(&planted).unwrap();
    fs::rename(at.join(".to.thalweg-part"), planted.join("tree")).unwrap();
    let refused = || {
        let refused = fleet::begin(&at.join("src"), &at.join("to")).unwrap_err().to_string();
        assert!(!at.join("to").exists() && !planted.join("plan").exists());
        refused
    };
    give_away(&planted);
    assert!(refused().contains("belongs to user 65534; remove it first"), "{}", refused());
    chownat(CWD, &planted, Some(Uid::ROOT), None, AtFlags::empty()).unwrap();
    chmod(&planted, 0o770);
    assert!(refused().contains("can be written by other users (mode 0770)"), "{}", refused());
    chmod(&planted, 0o700);
    assert!(fleet::begin(&at.join("src"), &at.join("to")).unwrap().is_some());
}

#[test]
fn a_file_of_another_user_does_not_pass_for_what_an_earlier_run_copied() {
    if !is_root("a planted copy") {
        return;
    }
    let place = scratch();
    let at = place.path();
    plant_stage(at);
    fs::rename(at.join(".to.thalweg-part"), at.join("to")).unwrap();
    give_away(&at.join("to/bin/tool"));
    let options = CopyOptions { target: thalweg_tree::Target::Exact, ..resuming() };
    let (report, _) = copied(at, &options, None);
    assert_eq!((report.error_count, report.files), (0, 1), "{}", problems(&report));
    expect_own_tree(at, false);
}

#[test]
fn in_a_directory_for_all_nothing_of_another_user_is_followed_or_written_into() {
    if !is_root("a planted link") {
        return;
    }
    let place = scratch();
    let (at, to) = (place.path(), place.path().join("to"));
    chmod(at, 0o1777);
    fs::write(at.join("src"), "secret").unwrap();
    chmod(&at.join("src"), 0o640);
    fs::write(at.join("victim"), "kept").unwrap();
    let refused = |options: &CopyOptions| {
        let (report, _) = copied(at, options, None);
        let problems = problems(&report);
        assert!(problems.contains("belongs to another user"), "{problems}");
    };
    let plain = CopyOptions::default();
    symlink("victim", &to).unwrap();
    give_away(&to);
    refused(&plain);
    assert_eq!(fs::read_to_string(at.join("victim")).unwrap(), "kept");
    fs::remove_file(&to).unwrap();
    fifo(&to);
    give_away(&to);
    refused(&plain);
    fs::remove_file(&to).unwrap();
    fs::write(&to, "his").unwrap();
    chmod(&to, 0o666);
    give_away(&to);
    let his = fs::File::open(&to).unwrap();
    refused(&CopyOptions { inplace: true, ..plain.clone() });
    let (report, _) = copied(at, &plain, None);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    let found = fs::metadata(&to).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777 & !0o640), (0, 0));
    assert_ne!(found.ino(), his.metadata().unwrap().ino());
    assert_eq!(fs::read_to_string(&to).unwrap(), "secret");
}

#[test]
fn the_mode_of_a_fifo_never_goes_to_the_file_behind_a_link_that_is_swapped_in() {
    const ROUNDS: usize = 3000;
    let place = scratch();
    let at = place.path();
    let (secret, here, link) = (at.join("secret"), at.join("to"), at.join("link"));
    fifo(&at.join("src"));
    chmod(&at.join("src"), 0o666);
    fs::write(&secret, "").unwrap();
    chmod(&secret, 0o600);
    symlink("secret", &link).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // This is one call, which fits between the creation of the FIFO and the change of its mode.
                let swapped = renameat_with(CWD, &link, CWD, &here, RenameFlags::EXCHANGE);
                if swapped.is_ok() {
                    let _ = fs::remove_file(&link);
                    let _ = symlink("secret", &link);
                }
            }
        });
        for _ in 0..ROUNDS {
            let _ = fs::remove_file(&here);
            support::copy(&at.join("src"), &here, &CopyOptions::archive());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(mode(&secret), 0o600);
}

#[test]
fn a_partial_file_under_a_default_list_is_closed_too_and_gets_the_mode_that_the_list_gives() {
    use std::os::unix::fs::OpenOptionsExt;
    let place = scratch();
    let (at, to) = (place.path(), place.path().join("to"));
    fs::write(at.join("src"), noise(large() * 4, 4)).unwrap();
    chmod(&at.join("src"), 0o666);
    // Owner rwx, a named user rwx, group r-x, mask rwx, others r--.
    let entries = [(1, 7, !0), (2, 7, OTHER), (4, 5, !0), (0x10, 7, !0), (0x20, 4, !0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        let entry = [u16::to_le_bytes(tag), u16::to_le_bytes(may)].concat();
        list.extend([entry, u32::to_le_bytes(id).to_vec()].concat());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(at, "system.posix_acl_default", &list, flags).is_err() {
        return skip("a default list", "this file system has no access lists");
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(at.join("born")).unwrap();
    let options = CopyOptions { resume: true, ..CopyOptions::default() };
    let (report, _) = copied(at, &options, Some(1));
    assert!(report.halted.is_some());
    assert_eq!(mode(&at.join(".to.thalweg-part")), 0o600);
    let (report, left) = copied(at, &options, None);
    assert!(report.error_count == 0 && left.is_empty(), "{left}");
    assert_eq!(mode(&to), mode(&at.join("born")));
}
