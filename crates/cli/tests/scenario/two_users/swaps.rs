//! Threads of the attacker that replace entries of the shared directory while a command runs.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{
    arena::{EVIL, chmod},
    attacker::Race,
    victim::{Victim, evil, fifo, plant},
};

/// Makes one name in turn a file, a symbolic link to root's file, a directory, a FIFO and absent.
pub fn kinds(v: &Victim, path: PathBuf) -> Race {
    let (secret, size) = (v.canary.join("secret"), v.size());
    let mut turn = 0;
    Race::start(move || {
        turn += 1;
        remove(&path);
        // Root may have made an entry with this name since the removal.
        if fs::symlink_metadata(&path).is_ok() {
            return;
        }
        let spare = beside(&path, turn % 2);
        remove(&spare);
        match turn % 5 {
            0 => drop(plant(&spare, &evil(size), 0o666)),
            1 => symlink(&secret, &spare).unwrap(),
            2 => fs::create_dir(&spare).unwrap(),
            3 => fifo(&spare),
            _ => return,
        }
        let _ = renameat_with(CWD, &spare, CWD, &path, RenameFlags::NOREPLACE);
        remove(&spare);
    })
}

/// Makes one name in turn a tree of the attacker with a journal, and a symbolic link to root's directory.
pub fn folders(v: &Victim, path: PathBuf) -> Race {
    let planted = v.d.join("planted");
    fs::create_dir(&planted).unwrap();
    chmod(&planted, 0o777);
    if v.makes_tree {
        v.plant_tree(&planted.join("tree"));
        fs::remove_dir_all(&planted).unwrap();
        v.plant_tree(&planted);
    }
    v.write_journal(&planted.join(".thalweg-journal"));
    let lead = v.d.join("lead");
    symlink(v.canary.join("folder"), &lead).unwrap();
    Race::start(move || {
        for from in [&planted, &lead] {
            if renameat_with(CWD, from, CWD, &path, RenameFlags::NOREPLACE).is_ok() {
                std::thread::yield_now();
                let _ = renameat_with(CWD, &path, CWD, from, RenameFlags::NOREPLACE);
            }
        }
    })
}

/// Makes one name in turn the attacker's file and a symbolic link to root's file.
pub fn file_and_link(v: &Victim, path: PathBuf) -> Race {
    let (file, lead) = (v.d.join("file"), v.d.join("lead"));
    plant(&file, "", 0o666);
    symlink(v.canary.join("config"), &lead).unwrap();
    let _ = fs::rename(&file, &path);
    Race::start(move || {
        // The exchange fails once root's file has the name, because the directory is sticky.
        let _ = renameat_with(CWD, &lead, CWD, &path, RenameFlags::EXCHANGE);
        std::thread::yield_now();
    })
}

/// Replaces every entry below a directory with a symbolic link: a directory with one to root's directory, a file with
/// one to root's file.
pub fn entries_for_links(folder: PathBuf, canary: PathBuf) -> Race {
    Race::start(move || replace_entries(&folder, &canary))
}

fn replace_entries(folder: &Path, canary: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            // Renames the directory instead of removing it, because it may not be empty.
            let aside = path.with_file_name("aside");
            let _ = fs::rename(&path, &aside);
            let _ = symlink(canary.join("folder"), &path);
            replace_entries(&aside, canary);
        } else if !meta.is_symlink() && fs::remove_file(&path).is_ok() {
            let _ = symlink(canary.join("config"), &path);
        }
    }
}

/// Two names that are exchanged with each other.
pub type Pair = [PathBuf; 2];

/// Makes files and directories, each beside a symbolic link to one of root's.
pub fn plant_pairs(tree: &Path, canary: &Path) -> Vec<Pair> {
    fs::create_dir(tree).unwrap();
    let mut pairs = Vec::new();
    for n in 0..10 {
        let names = [tree.join(format!("a{n}")), tree.join(format!("z{n}"))];
        let leads = if n % 2 == 0 {
            drop(plant(&names[0], EVIL, 0o644));
            canary.join("secret")
        } else {
            fs::create_dir(&names[0]).unwrap();
            // Root's directory has an entry with this name, too.
            drop(plant(&names[0].join("inside"), EVIL, 0o644));
            canary.join("folder")
        };
        symlink(leads, &names[1]).unwrap();
        pairs.push(names);
    }
    pairs
}

/// Exchanges the names of each pair repeatedly.
pub fn exchange_pairs(pairs: Vec<Pair>) -> Race {
    Race::start(move || {
        for [one, other] in &pairs {
            let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
        }
    })
}

/// Removes an entry of the attacker's; one of root's stays.
pub fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

fn beside(path: &Path, turn: u64) -> PathBuf {
    path.with_file_name(format!("spare-{turn}"))
}
