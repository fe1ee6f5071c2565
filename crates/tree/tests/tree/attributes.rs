//! Tests that copies keep modes, times, owners, links, extended attributes and holes.

use crate::support;

use rustix::fs::{Timespec, Timestamps, XattrFlags, lgetxattr, setxattr};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};
use support::{contents, copy, large, noise, problems, recursive, walk};
use thalweg_tree::{CopyOptions, Preserve, When};

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

#[test]
fn an_archive_keeps_modes_times_and_links() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir_all(src.join("ro/deep")).unwrap();
    fs::create_dir(src.join("sticky")).unwrap();
    fs::write(src.join("ro/f"), "f").unwrap();
    fs::write(src.join("big"), noise(large(), 1)).unwrap();
    fs::hard_link(src.join("big"), src.join("ro/deep/same")).unwrap();
    fs::hard_link(src.join("ro/f"), src.join("sticky/f")).unwrap();
    symlink("../big", src.join("ro/link")).unwrap();
    fs::hard_link(src.join("ro/link"), src.join("link too")).unwrap();
    for (path, mode) in [("big", 0o400), ("ro/f", 0o7711), ("sticky", 0o1777), ("ro", 0o555)] {
        fs::set_permissions(src.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (n, path) in ["ro/link", "big", "ro/f", "ro/deep", "sticky", "ro", ""].iter().enumerate() {
        set_times(&src.join(path), 1_000_000_000 + n as i64, 123_456_789 + n as i64);
    }
    for jobs in [1, 4] {
        let options = CopyOptions { jobs, ..CopyOptions::archive() };
        let report = copy(&src, &to, &options);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert_eq!(walk(&src), walk(&to));
        assert_eq!(report.links, 4, "three hard links, one of a symbolic link, and that one");
        fs::set_permissions(to.join("ro"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir_all(&to).unwrap();
    }
    let plain = copy(&src, &to, &recursive());
    assert_eq!(contents(&src), contents(&to));
    assert_eq!(plain.files, 4, "links become files of their own");
}

#[test]
fn many_links_between_directories_are_kept_by_many_workers() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    for dir in 0..20 {
        fs::create_dir(src.join(format!("d{dir}"))).unwrap();
        for file in 0..30 {
            let path = src.join(format!("d{dir}/f{file}"));
            if dir == 0 {
                fs::write(&path, noise(file * 20_000, file as u64)).unwrap();
            } else {
                fs::hard_link(src.join(format!("d0/f{file}")), &path).unwrap();
            }
        }
    }
    let options = CopyOptions { jobs: 4, ..CopyOptions::archive() };
    let report = copy(&src, &to, &options);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!((report.files, report.links), (30, 570));
    assert_eq!(walk(&src), walk(&to));
}

#[test]
fn extended_attributes_come_along_when_asked() {
    let place = tempfile::tempdir_in(".").unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    for name in ["small", "big"] {
        let len = if name == "big" { large() } else { 5 };
        fs::write(src.join(name), noise(len, 5)).unwrap();
        if let Err(errno) = setxattr(src.join(name), "user.x", b"1\0\xff", XattrFlags::empty()) {
            eprintln!("skipped: no user attributes here ({errno})");
            return;
        }
    }
    let many: Vec<u8> = vec![b'v'; 300];
    for n in 0..5 {
        let name = format!("user.a rather long name so that the list is long, number {n}");
        setxattr(src.join("small"), name, &many, XattrFlags::empty()).unwrap();
    }
    setxattr(&src, "user.dir", b"d", XattrFlags::empty()).unwrap();
    copy(&src, &to, &CopyOptions::archive());
    assert_eq!(xattr(&to.join("small"), "user.x").unwrap(), b"1\0\xff");
    assert_eq!(xattr(&to.join("big"), "user.x").unwrap(), b"1\0\xff");
    assert_eq!(xattr(&to, "user.dir").unwrap(), b"d");
    let last = "user.a rather long name so that the list is long, number 4";
    assert_eq!(xattr(&to.join("small"), last).unwrap(), many);
    // Without requested attributes, a replaced file keeps its own ones.
    fs::write(src.join("small"), "other").unwrap();
    setxattr(src.join("small"), "user.x", b"2", XattrFlags::empty()).unwrap();
    copy(&src.join("small"), &to.join("small"), &CopyOptions::default());
    assert_eq!(xattr(&to.join("small"), "user.x").unwrap(), b"1\0\xff");
    copy(&src.join("small"), &to.join("small"), &CopyOptions::archive());
    assert_eq!(xattr(&to.join("small"), "user.x").unwrap(), b"2");
    let usual = CopyOptions { preserve: Preserve::usual(), ..CopyOptions::default() };
    copy(&src.join("small"), &to.join("usual"), &usual);
    assert_eq!(xattr(&to.join("usual"), "user.x"), None);
}

#[test]
fn access_lists_follow_the_mode() {
    let place = tempfile::tempdir_in(".").unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    fs::write(src.join("f"), "f").unwrap();
    fs::write(src.join("plain"), "plain").unwrap();
    // Version 2 of the format, with the entries user::rwx, user:1000:r--, group::r--, mask::r-- and other::---.
    let mut list = vec![2, 0, 0, 0];
    let entries =
        [(1, 7, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    for (tag, permissions, id) in entries {
        list.extend_from_slice(&u16::to_le_bytes(tag));
        list.extend_from_slice(&u16::to_le_bytes(permissions));
        list.extend_from_slice(&u32::to_le_bytes(id));
    }
    let name = "system.posix_acl_access";
    if let Err(errno) = setxattr(src.join("f"), name, &list, XattrFlags::empty()) {
        eprintln!("skipped: no access lists here ({errno})");
        return;
    }
    let usual = CopyOptions { preserve: Preserve::usual(), ..recursive() };
    let report = copy(&src, &to, &usual);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert_eq!(xattr(&to.join("f"), name), Some(list.clone()));
    copy(&src, &place.path().join("without"), &recursive());
    assert_eq!(xattr(&place.path().join("without/f"), name), None);
    // A default ACL gives new files an ACL. The copy removes it if the source has none.
    let heir = place.path().join("heir");
    fs::create_dir(&heir).unwrap();
    setxattr(&heir, "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
    copy(&src, &heir, &usual);
    assert_eq!(xattr(&heir.join("src/f"), name), Some(list));
    assert_eq!(xattr(&heir.join("src/plain"), name), None);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&heir.join("src/plain")), mode(&src.join("plain")));
    // No attribute is preserved, so the default ACL determines the mode, as it does for `cp -r`.
    let report = copy(&src, &heir.join("again"), &recursive());
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    assert!(xattr(&heir.join("again"), "system.posix_acl_default").is_some());
    if let Ok(cp) =
        std::process::Command::new("cp").arg("-r").arg(&src).arg(heir.join("cp")).status()
    {
        assert!(cp.success());
        for path in ["", "f", "plain"] {
            assert_eq!(
                mode(&heir.join("again").join(path)),
                mode(&heir.join("cp").join(path)),
                "{path}"
            );
        }
    }
}

#[test]
fn holes_stay_holes_appear_or_vanish_as_asked() {
    let place = tempfile::tempdir_in(".").unwrap();
    let path = |name: &str| place.path().join(name);
    let blocks = |name: &str| fs::metadata(path(name)).unwrap().blocks();
    let size: u64 = 8 << 20;
    let file = fs::File::create(path("holes")).unwrap();
    file.set_len(size).unwrap();
    for (at, len) in [(1 << 20, 5000), (3 << 20, 400_000), ((8 << 20) - 3, 3)] {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&noise(len, at), at).unwrap();
    }
    let truth = fs::read(path("holes")).unwrap();
    fs::write(path("zeros"), &truth).unwrap();
    let is_sparse_here = blocks("holes") * 512 < size;
    let cases = [
        ("holes", When::Auto, true),
        ("holes", When::Always, true),
        ("zeros", When::Always, true),
        ("holes", When::Never, false),
        ("zeros", When::Never, false),
    ];
    for (source, sparse, has_holes) in cases {
        let options = CopyOptions { sparse, reflink: When::Never, ..CopyOptions::default() };
        let report = copy(&path(source), &path("copy"), &options);
        assert_eq!(report.error_count, 0, "{}", problems(&report));
        assert!(fs::read(path("copy")).unwrap() == truth, "{source} {sparse:?}");
        if is_sparse_here {
            assert_eq!(blocks("copy") * 512 < size, has_holes, "{source} {sparse:?}");
        }
        fs::remove_file(path("copy")).unwrap();
    }
    // Each of these files consists of one hole.
    for size in [1, 4096, 8192, 200_000, 5 << 20] {
        fs::File::create(path("hole")).unwrap().set_len(size).unwrap();
        copy(&path("hole"), &path("copy"), &CopyOptions::default());
        assert_eq!(fs::read(path("copy")).unwrap(), vec![0; size as usize]);
    }
}

#[test]
fn a_clone_is_made_or_refused_as_asked() {
    let place = tempfile::tempdir_in(".").unwrap();
    let path = |name: &str| place.path().join(name);
    for size in [10, 1 << 20] {
        fs::write(path("f"), noise(size, 2)).unwrap();
        let options = CopyOptions { reflink: When::Always, ..CopyOptions::default() };
        let report = copy(&path("f"), &path("clone"), &options);
        if report.error_count == 0 {
            assert_eq!(report.cloned, size as u64);
            assert_eq!(fs::read(path("f")).unwrap(), fs::read(path("clone")).unwrap());
        } else {
            assert!(problems(&report).contains("FICLONE"), "{}", problems(&report));
            assert_eq!(support::names(place.path()), ["f"]);
        }
    }
}

#[test]
fn owners_are_kept_if_the_user_may_change_them() {
    let place = tempfile::tempdir().unwrap();
    let (src, to) = (place.path().join("src"), place.path().join("to"));
    fs::create_dir(&src).unwrap();
    fs::write(src.join("f"), "f").unwrap();
    symlink("f", src.join("l")).unwrap();
    fs::set_permissions(src.join("f"), fs::Permissions::from_mode(0o6755)).unwrap();
    let id = Some(12345);
    if std::os::unix::fs::lchown(src.join("f"), id, id).is_err() {
        eprintln!("skipped: may not give files away");
        return;
    }
    fs::set_permissions(src.join("f"), fs::Permissions::from_mode(0o6755)).unwrap();
    std::os::unix::fs::lchown(src.join("l"), id, id).unwrap();
    std::os::unix::fs::lchown(&src, id, id).unwrap();
    let options = CopyOptions { preserve: Preserve::usual(), ..recursive() };
    let report = copy(&src, &to, &options);
    assert_eq!(report.error_count, 0, "{}", problems(&report));
    for path in [to.clone(), to.join("f"), to.join("l")] {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12345, 12345), "{}", path.display());
    }
    assert_eq!(fs::metadata(to.join("f")).unwrap().mode() & 0o7777, 0o6755);
}
