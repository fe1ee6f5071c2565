//! Files that influence thalweg and that another user may have prepared: the profile, its lock, saved results, cached
//! programs and `.netrc`. `sudo` may keep the home directory of that user.

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use super::{
    arena::{Arena, SECRET, chmod},
    attacker::{UID, as_attacker},
    check::outside,
    victim::{fifo, plant},
};
use crate::support::{Ran, skip::is_root};

/// Start of a line that uses the profile in HOME.
const AT_HOME: &str = "unset THALWEG_PROFILE XDG_STATE_HOME XDG_CACHE_HOME; export HOME=$D/home;";
/// Measures the pair that takes least time. The budget follows.
const TUNE: &str = "$T tune --assume-idle --quick --pair memory:repeated --budget";
const STUDY: &str =
    "$T study 900 --quick --sessions=3 --rounds=3 --sample=1ms --pause=0s --at $OWN";

/// Makes an entry, with this text if it is a file, at the path of the profile.
type LayProfile = fn(&Path, &str);
/// Makes an entry at the path of the lock, and returns it if it stays open. The second path is the directory `canary`.
type LayLock = fn(&Path, &Path) -> Option<fs::File>;

/// Makes the home directory of the attacker in `d`. `sudo` without `-H` keeps it in root's environment.
fn home(arena: &Arena) -> PathBuf {
    let home = arena.d().join("home");
    let state = home.join(".local/state/thalweg");
    as_attacker(|| {
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(home.join(".cache")).unwrap();
    });
    home
}

/// Runs a quick measurement after these shell settings. Repeats it with larger budgets, which a busy machine may need.
#[track_caller]
fn expect_tuned(arena: &Arena, settings: &str) {
    let tune = |budget| arena.run(&format!("{settings} {TUNE} {budget}"));
    let tuned = ["1s", "8s"].into_iter().map(tune).find(|ran| ran.status.success());
    tuned.unwrap_or_else(|| tune("64s")).expect(0);
}

fn profile(arena: &Arena) -> PathBuf {
    arena.d().join("home/.local/state/thalweg/profile.json")
}

/// Returns the state of the profile that `plan --json` reports.
fn state(ran: &Ran) -> Value {
    ran.all_json()["profile"]["state"].clone()
}

/// Returns all files below a directory that do not belong to the attacker.
fn of_root(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.uid() != UID {
            found.push(path.clone());
        }
        if meta.is_dir() {
            found.extend(of_root(&path));
        }
    }
    found
}

#[test]
fn a_profile_of_another_user_is_reported_once_and_not_used() {
    let test = "a_profile_of_another_user_is_reported_once_and_not_used";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    home(&arena);
    // Uses a valid profile of root's, so that only its owner and mode can be reasons to reject it.
    expect_tuned(&arena, "THALWEG_PROFILE=$OWN/profile.json");
    let text = fs::read_to_string(arena.own("profile.json")).unwrap();
    assert_eq!(fs::metadata(arena.own("profile.json")).unwrap().mode() & 0o7777, 0o644);
    let plan = format!("{AT_HOME} $T plan $OWN/secret $D/out --json");
    let copy = format!("{AT_HOME} $T copy $OWN/secret $D/out");
    let lay: [(&str, LayProfile); 3] = [
        ("file", |path, text| drop(plant(path, text, 0o644))),
        ("FIFO", |path, _| fifo(path)),
        ("directory", |path, _| fs::create_dir(path).unwrap()),
    ];
    for (what, lay) in lay {
        as_attacker(|| lay(&profile(&arena), &text));
        assert_eq!(state(&arena.run(&plan).expect(0)), "broken", "{what}");
        let ran = arena.run(&copy).expect(0);
        assert_eq!(ran.stderr.matches("profile.json").count(), 1, "{what}: {}", ran.stderr);
        as_attacker(|| {
            fs::remove_file(profile(&arena)).or_else(|_| fs::remove_dir(profile(&arena)))
        })
        .unwrap();
    }
    // A symbolic link to a file of root's that the attacker may not read.
    as_attacker(|| symlink(arena.canary().join("secret"), profile(&arena)).unwrap());
    let ran = arena.run(&copy).expect(0);
    assert!(!ran.stderr.contains(&SECRET[..10]), "{}", ran.stderr);
    // A profile of root's that other users can write.
    let line = format!(
        "export THALWEG_PROFILE=$OWN/profile.json; {}",
        "$T plan $OWN/secret $D/out --json"
    );
    assert_eq!(state(&arena.run(&line).expect(0)), "current");
    chmod(&arena.own("profile.json"), 0o666);
    assert_eq!(state(&arena.run(&line).expect(0)), "broken");
}

#[test]
fn tune_writes_nothing_into_the_home_of_another_user() {
    let test = "tune_writes_nothing_into_the_home_of_another_user";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let home = home(&arena);
    let tune = format!("{AT_HOME} {TUNE} 1s");
    let refused = || {
        let before = outside(&arena);
        let ran = arena.run(&tune).expect(1);
        assert!(ran.stderr.contains("belongs to user 54321"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: use sudo -H, or set XDG_STATE_HOME"), "{}", ran.stderr);
        assert_eq!(of_root(&home), Vec::<PathBuf>::new());
        assert_eq!(outside(&arena), before);
    };
    refused();
    as_attacker(|| drop(plant(&profile(&arena), "{}", 0o666)));
    refused();
    as_attacker(|| {
        fs::remove_file(profile(&arena)).unwrap();
        symlink(arena.canary().join("config"), profile(&arena)).unwrap();
    });
    refused();
    // The directory is a link to one of root's.
    as_attacker(|| {
        fs::remove_dir_all(home.join(".local/state/thalweg")).unwrap();
        symlink(arena.canary().join("folder"), home.join(".local/state/thalweg")).unwrap();
    });
    refused();
    // The directory does not exist yet.
    as_attacker(|| fs::remove_dir_all(home.join(".local")).unwrap());
    refused();
    expect_tuned(&arena, &format!("{AT_HOME} export XDG_STATE_HOME=$OWN/state;"));
    assert!(arena.own("state/thalweg/profile.json").exists());
}

#[test]
fn a_lock_of_another_user_beside_the_profile_is_not_waited_for() {
    let test = "a_lock_of_another_user_beside_the_profile_is_not_waited_for";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let lay: [(&str, LayLock); 3] = [
        ("lock", |path, _| {
            let file = plant(path, "", 0o666);
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            Some(file)
        }),
        ("FIFO", |path, _| {
            fifo(path);
            None
        }),
        ("symbolic link", |path, canary| {
            symlink(canary.join("new"), path).unwrap();
            None
        }),
    ];
    for (what, lay) in lay {
        arena.reset();
        let (lock, canary) = (arena.d().join(".profile.json.lock"), arena.canary());
        let held = as_attacker(|| lay(&lock, &canary));
        let before = outside(&arena);
        expect_tuned(&arena, "THALWEG_PROFILE=$D/profile.json");
        let meta = fs::metadata(arena.d().join("profile.json")).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o644), "{what}");
        assert_eq!(outside(&arena), before, "{what}");
        drop(held);
    }
}

#[test]
fn results_are_neither_kept_in_nor_read_from_a_directory_of_another_user() {
    let test = "results_are_neither_kept_in_nor_read_from_a_directory_of_another_user";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let home = home(&arena);
    let ran = arena.run(&format!("{AT_HOME} {STUDY}"));
    assert_eq!(ran.status.code(), Some(1), "{}", ran.said());
    assert!(ran.stderr.contains("belongs to user 54321"), "{}", ran.stderr);
    assert_eq!(of_root(&home), Vec::<PathBuf>::new());
    // Results of the attacker at the path of root's results.
    arena.save_result();
    let theirs = home.join(".local/state/thalweg/studies");
    arena.run("cp -r $OWN/results $D/home/.local/state/thalweg/studies").expect(0);
    arena.run(&format!("chown -R {UID}:{UID} $D/home")).expect(0);
    assert!(theirs.is_dir());
    let ran = arena.run(&format!("{AT_HOME} $T study --json"));
    let said = ran.all_json().to_string();
    assert!(!said.contains("\"began\""), "{said}");
    assert!(ran.stderr.contains("belongs to user 54321"), "{}", ran.stderr);
    let ran = arena.run(&format!("{AT_HOME} $T report --markdown"));
    assert_eq!(ran.status.code(), Some(2), "{}", ran.said());
}

#[test]
fn a_netrc_that_is_a_fifo_or_belongs_to_another_user_is_an_error() {
    let test = "a_netrc_that_is_a_fifo_or_belongs_to_another_user_is_an_error";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let netrc = home(&arena).join(".netrc");
    let fetch = format!("{AT_HOME} $T fetch $URL/install.sh $OWN/fetched");
    as_attacker(|| drop(plant(&netrc, "default login u password p\n", 0o600)));
    arena.run(&fetch).expect(2).expect_said("belongs to another user");
    as_attacker(|| {
        fs::remove_file(&netrc).unwrap();
        fifo(&netrc);
    });
    arena.run(&fetch).expect(2).expect_said("is not a regular file");
    arena.run(&fetch.replace("T fetch", "T fetch --no-netrc")).expect(0);
}

#[test]
fn studies_that_another_user_has_left_in_the_current_directory_are_not_run() {
    let test = "studies_that_another_user_has_left_in_the_current_directory_are_not_run";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let text = fs::read_to_string(arena.own("studies/900-null.toml")).unwrap();
    as_attacker(|| {
        fs::create_dir(arena.d().join("studies")).unwrap();
        drop(plant(&arena.d().join("studies/900-null.toml"), &text, 0o644));
    });
    let study = "--quick --sessions=3 --rounds=3 --sample=1ms --pause=0s --no-save --at $OWN";
    let line = format!("cd $D; unset THALWEG_STUDIES; $T study 900 {study}");
    let ran = arena.run(&line).expect(2);
    assert!(ran.stderr.contains("'studies' belongs to user 54321"), "{}", ran.stderr);
    assert!(ran.stderr.contains("THALWEG_STUDIES=studies"), "{}", ran.stderr);
    arena.run(&line.replace("unset THALWEG_STUDIES", "export THALWEG_STUDIES=studies")).expect(0);
}
