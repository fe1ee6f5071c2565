//! Trees from a thalweg server.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::fs::{CWD, Mode, mkfifoat};
use thalweg_serve::client::{FetchError, tree::TreeOptions};
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};

use super::support::{TreeServer, get, options, tree, write};
use thalweg_testing::{names, noise};

/// Creates many small files, some larger than a buffer, one that is fetched separately, and odd names,
/// modes and times.
fn fill(served: &TreeServer) {
    for n in 0..300 {
        served.file(&format!("many/{}/f{n}", n % 7), noise(n * 13, n as u64));
    }
    for (name, len) in [("buffer", 65_536), ("more", 65_537), ("middle", 3_000_001)] {
        served.file(name, noise(len, 5));
    }
    served.file("large", noise((16 << 20) + 1, 6));
    served.file("deep/er/and/er/empty", "");
    fs::create_dir(served.root("no files")).unwrap();
    fs::write(served.root("").join(OsStr::from_bytes(b"odd\xff\n %2f")), "odd").unwrap();
    served.file(".hidden", "hidden");
    symlink("middle", served.root("link")).unwrap();
    symlink("../../more", served.root("deep/er/up")).unwrap();
    symlink("nowhere", served.root("dangling")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let file = fs::File::options().write(true).open(served.root("middle")).unwrap();
    file.set_modified(old).unwrap();
    fs::set_permissions(served.root("middle"), fs::Permissions::from_mode(0o640)).unwrap();
    // A mode that a new file has only without a umask, and a mode that forbids the owner to write.
    fs::set_permissions(served.root("more"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(served.root("buffer"), fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(served.root("no files"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::File::open(served.root("no files")).unwrap().set_modified(old).unwrap();
    fs::File::open(served.root("")).unwrap().set_modified(old).unwrap();
}

#[test]
fn a_tree_is_the_same_as_on_the_server_with_modes_and_times() {
    let served = TreeServer::new();
    fill(&served);
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert!(fetched.halted.is_none() && fetched.missed.is_empty(), "{fetched:?}");
    assert_eq!((fetched.files, fetched.links, fetched.unchanged), (307, 3, 0));
    assert_eq!(tree(&served.dst()), tree(&served.root("")));
    assert_eq!(names(served.dst().parent().unwrap()), ["dst", "root"]);
}

#[test]
fn no_name_is_seen_before_what_it_names_is_synced() {
    let served = TreeServer::new();
    for n in 0..300 {
        served.file(&format!("many/{}/f{n}", n % 7), noise(n * 13, n as u64));
    }
    let get = |rules: Vec<Rule>, options: &TreeOptions| {
        let outcome = Script::new(rules).run(|| get(&served.url(), &served.dst(), options));
        (outcome.value.unwrap(), outcome.calls[Call::Syncfs], outcome.calls[Call::Fsync])
    };
    // One syncfs(2) call syncs a new directory. If it fails, nothing of the directory remains.
    let rule = Rule::once(Call::Syncfs, 1, Effect::Errno(Errno::IO));
    let (failed, ..) = get(vec![rule], &options());
    assert!(failed.halted.is_some() && failed.kept.is_none(), "{failed:?}");
    assert_eq!(names(served.dst().parent().unwrap()), ["root"]);
    let (fetched, whole, single) = get(Vec::new(), &options());
    assert!(fetched.halted.is_none(), "{fetched:?}");
    assert_eq!((whole, single), (1, 0));
    // In an existing directory, many files wait for one sync.
    for n in 0..300 {
        served.file(&format!("many/{}/f{n}", n % 7), noise(n * 13 + 1, n as u64));
    }
    // If it fails, those files keep their old contents. A sync of each file could succeed although its data is lost.
    let before = tree(&served.dst());
    let rule = Rule::once(Call::Syncfs, 1, Effect::Errno(Errno::IO));
    let (failed, ..) = get(vec![rule], &options());
    let after = tree(&served.dst());
    let changed = before.iter().filter(|(name, shown)| after[*name] != **shown);
    let files = changed.filter(|(name, _)| served.dst().join(name).is_file()).count() as u64;
    assert!(files == failed.files && failed.halted.is_some(), "{files} {failed:?}");
    let (fetched, whole, single) = get(Vec::new(), &options());
    assert_eq!((fetched.files + failed.files, fetched.missed.len()), (300, 0), "{fetched:?}");
    assert!((1..30).contains(&whole) && single < 30, "{whole} {single}");
    assert_eq!(tree(&served.dst()), tree(&served.root("")));
}

#[test]
fn what_is_there_is_not_moved_again_and_nothing_is_removed() {
    let served = TreeServer::new();
    fill(&served);
    get(&served.url(), &served.dst(), &options()).unwrap();
    write(&served.dst().join("own"), "stays");
    served.file("many/1/new", "new");
    served.file("many/0/f0", "another size");
    fs::remove_file(served.root("many/2/f2")).unwrap();
    fs::remove_file(served.root("link")).unwrap();
    symlink("more", served.root("link")).unwrap();
    fs::set_permissions(served.root("buffer"), fs::Permissions::from_mode(0o600)).unwrap();
    // The file keeps its size and gets another time.
    let before = fs::metadata(served.root("large")).unwrap().modified().unwrap();
    served.file("large", noise((16 << 20) + 1, 7));
    let file = fs::File::options().write(true).open(served.root("large")).unwrap();
    file.set_modified(before + Duration::from_nanos(1)).unwrap();
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert!(fetched.missed.is_empty() && fetched.halted.is_none(), "{fetched:?}");
    assert_eq!((fetched.files, fetched.links), (3, 1));
    assert!(served.dst().join("own").exists() && served.dst().join("many/2/f2").exists());
    fs::remove_file(served.dst().join("own")).unwrap();
    fs::remove_file(served.dst().join("many/2/f2")).unwrap();
    let again = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!((again.files, again.links, again.report.bytes), (0, 0, 0));
    assert_eq!(tree(&served.dst()), tree(&served.root("")));
}

#[test]
fn hashes_decide_what_is_fetched_whatever_the_times() {
    let served = TreeServer::with(|options| {
        options.hash = true;
        // Hashing may take long on a busy machine.
        options.timeouts = thalweg_serve::server::Timeouts::NONE;
    });
    fill(&served);
    get(&served.url(), &served.dst(), &options()).unwrap();
    // Equal bytes with another time, and other bytes with an equal time and size.
    let at = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let turn = |path: &Path, time| {
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    for name in ["middle", "many/1/f1", "many/2/f2"] {
        let path = served.dst().join(name);
        turn(&path, at(&path) + Duration::from_secs(7));
    }
    let changed = ["many/4/f11", "large", "many/3/f10"];
    for name in changed {
        let path = served.dst().join(name);
        let (time, mut bytes) = (at(&path), fs::read(&path).unwrap());
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
        turn(&path, time);
    }
    let unaware = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!(unaware.files, 3, "by times, those whose times differ");
    assert_ne!(tree(&served.dst()), tree(&served.root("")));
    for name in ["middle", "many/1/f1"] {
        let path = served.dst().join(name);
        turn(&path, at(&path) + Duration::from_secs(7));
    }
    let by_hash = TreeOptions { by_hash: true, ..options() };
    let fetched = get(&served.url(), &served.dst(), &by_hash).unwrap();
    assert!(fetched.missed.is_empty() && fetched.halted.is_none(), "{fetched:?}");
    assert_eq!((fetched.files, fetched.unchanged), (3, 304));
    assert_eq!(tree(&served.dst()), tree(&served.root("")));
}

#[test]
fn a_server_without_hashes_is_reported_and_nothing_is_touched() {
    let served = TreeServer::new();
    served.file("file", "as served");
    let by_hash = TreeOptions { by_hash: true, ..options() };
    // The destination is empty, so the client compares no hashes and the fetch succeeds.
    assert_eq!(get(&served.url(), &served.dst(), &by_hash).unwrap().files, 1);
    write(&served.dst().join("file"), "differs..");
    let fetched = get(&served.url(), &served.dst(), &by_hash).unwrap();
    assert!(matches!(fetched.halted, Some(FetchError::Unsupported(_))), "{fetched:?}");
    assert_eq!(fs::read(served.dst().join("file")).unwrap(), b"differs..");
}

#[test]
fn obstacles_are_reported_and_the_rest_is_fetched() {
    let served = TreeServer::new();
    served.file("folder/x", "x");
    served.file("file", "f");
    symlink("file", served.root("link")).unwrap();
    served.file("rest", "r");
    write(&served.dst().join("folder"), "no folder");
    fs::create_dir_all(served.dst().join("file")).unwrap();
    fs::create_dir_all(served.dst().join("link")).unwrap();
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    let missed: Vec<_> = fetched.missed.iter().map(|missed| missed.path.clone()).collect();
    assert_eq!(fetched.missed_count, 4, "{fetched:?}");
    for path in ["folder", "folder/x", "file", "link"] {
        assert!(missed.contains(&path.as_bytes().to_vec()), "{path}: {missed:?}");
    }
    assert_eq!(fs::read(served.dst().join("rest")).unwrap(), b"r");
    assert_eq!(fs::read(served.dst().join("folder")).unwrap(), b"no folder");
}

#[test]
fn a_link_in_the_place_of_a_folder_is_not_written_through() {
    let served = TreeServer::new();
    served.file("folder/x", "x");
    let outside = served.dst().with_file_name("outside");
    fs::create_dir_all(served.dst()).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, served.dst().join("folder")).unwrap();
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!(fetched.missed_count, 2, "{fetched:?}");
    assert!(names(&outside).is_empty());
}

#[test]
fn what_the_server_leaves_out_is_counted() {
    let served = TreeServer::new();
    served.file("file", "f");
    mkfifoat(CWD, served.root("fifo"), Mode::RWXU).unwrap();
    served.file(".x.thalweg-part", "of another run");
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!((fetched.files, fetched.left_out, fetched.missed_count), (1, 2, 0));
    assert_eq!(names(&served.dst()), ["file"]);
}

#[test]
fn set_id_bits_come_only_with_the_owner() {
    let served = TreeServer::new();
    served.file("file", "f");
    fs::set_permissions(served.root("file"), fs::Permissions::from_mode(0o4755)).unwrap();
    get(&served.url(), &served.dst(), &options()).unwrap();
    let mode =
        |path: &str| fs::metadata(served.dst().with_file_name(path).join("file")).unwrap().mode();
    assert_eq!(mode("dst") & 0o7777, 0o755);
    let kept = TreeOptions { owner: true, ..options() };
    get(&served.url(), &served.dst().with_file_name("kept"), &kept).unwrap();
    assert_eq!(mode("kept") & 0o7777, 0o4755);
}

#[test]
fn a_full_disk_keeps_what_came_and_a_later_run_goes_on() {
    let served = TreeServer::new();
    fill(&served);
    let one = TreeOptions { jobs: 1, ..options() };
    let full =
        |nth| Rule { call: Call::Pwrite, nth, effect: Effect::Errno(Errno::NOSPC), repeat: true };
    let failed = Script::new(vec![full(100)]).run(|| get(&served.url(), &served.dst(), &one)).value;
    let failed = failed.unwrap();
    assert!(matches!(failed.halted, Some(FetchError::Moved(_))), "{failed:?}");
    assert_eq!(failed.kept.as_deref(), Some(c".dst.thalweg-part"));
    assert!(failed.files > 0 && !served.dst().exists());
    let fetched = get(&served.url(), &served.dst(), &one).unwrap();
    assert_eq!(fetched.files + failed.files, 307, "{fetched:?}");
    assert_eq!(fetched.unchanged, failed.files);
    assert_eq!(tree(&served.dst()), tree(&served.root("")));
    assert_eq!(names(served.dst().parent().unwrap()), ["dst", "root"]);
}

#[test]
fn a_leftover_of_another_folder_or_without_a_journal_is_not_built_upon() {
    let served = TreeServer::new();
    served.file("a/x", "x");
    served.file("b/x", "y");
    let part = served.dst().with_file_name(".dst.thalweg-part");
    write(&part.join("old"), "of nobody knows what");
    get(&format!("{}a/", served.url()), &served.dst(), &options()).unwrap();
    assert_eq!(names(&served.dst()), ["x"]);
    assert_eq!(names(served.dst().parent().unwrap()), ["dst", "root"]);
}

#[test]
fn a_file_that_changed_since_the_list_is_reported_and_not_published() {
    let served = TreeServer::new();
    // The first answer fills the socket buffers, so that the list is outdated when the client receives the
    // other file.
    served.file("a", noise(40 << 20, 1));
    served.file("z/small", "before");
    let one = TreeOptions { jobs: 1, ..options() };
    let mut limited = one;
    limited.files.way.limit =
        Some(std::sync::Arc::new(thalweg_core::rate_limit::RateLimit::new(20 << 20)));
    let (url, dst) = (served.url(), served.dst());
    let fetching = std::thread::spawn(move || get(&url, &dst, &limited).unwrap());
    let part = served.dst().with_file_name(".dst.thalweg-part");
    while !part.join("z").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    served.file("z/small", "afterwards");
    let fetched = fetching.join().unwrap();
    // The small file may have been sent before it changed.
    if fetched.missed_count == 1 {
        assert!(matches!(fetched.missed[0].error, FetchError::OutOfDate(_)), "{fetched:?}");
        assert_eq!(fetched.later, 1);
        assert!(!served.dst().join("z/small").exists());
    } else {
        assert_eq!(fs::read(served.dst().join("z/small")).unwrap(), b"before");
    }
}

#[test]
fn neither_a_staging_directory_nor_a_file_of_another_user_passes_for_what_came_before() {
    use rustix::fs::{AtFlags, Uid, chownat};
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can plant files of another user");
    }
    let give_away = |path: &Path| {
        let other = Some(Uid::from_raw(65534));
        chownat(CWD, path, other, None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    let served = TreeServer::new();
    served.file("tool", "ours");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 0);
    let set_old = |path: &Path| {
        fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    };
    set_old(&served.root("tool"));
    let staged = served.dst().with_file_name(".dst.thalweg-part");
    write(&staged.join("tool"), "evil");
    set_old(&staged.join("tool"));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let journal = format!(
        r#"{{"schema":2,"source":{{"url":"{}","validator":"","size":0}},"done":[],"boot_id":"{}"}}"#,
        served.url(),
        boot.trim()
    );
    write(&staged.join(".thalweg-journal"), journal);
    give_away(&staged);
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!((fetched.files, fetched.missed_count), (1, 0), "{fetched:?}");
    assert_eq!(fs::read_to_string(served.dst().join("tool")).unwrap(), "ours");
    assert!(staged.join("tool").exists());
    // The destination directory exists now.
    write(&served.dst().join("tool"), "evil");
    set_old(&served.dst().join("tool"));
    give_away(&served.dst().join("tool"));
    let fetched = get(&served.url(), &served.dst(), &options()).unwrap();
    assert_eq!((fetched.files, fetched.unchanged), (1, 0), "{fetched:?}");
    assert_eq!(fs::read_to_string(served.dst().join("tool")).unwrap(), "ours");
    assert_eq!(fs::metadata(served.dst().join("tool")).unwrap().uid(), 0);
}
