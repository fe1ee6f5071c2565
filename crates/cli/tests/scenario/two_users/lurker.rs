//! A thread of the attacker that tries to open all files in the shared directory while a command runs.

use rustix::fs::{Mode, OFlags, fstat, open};
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    attacker::{Race, as_attacker},
    check::is_secret,
};

/// Number of open files that are kept: enough for one run. All tests of the process share the limit on open files.
const MOST_KEPT: usize = 100;
const DEEPEST: usize = 4;

#[derive(Default)]
struct Loot {
    /// Root's files that the attacker could open; they are read again at the end.
    kept: Vec<(PathBuf, File)>,
    wrong: Vec<String>,
}

/// A thread of the attacker that opens whatever it can.
pub struct Lurker {
    race: Race,
    loot: Arc<Mutex<Loot>>,
    folder: PathBuf,
}

impl Lurker {
    pub fn start(folder: &Path) -> Self {
        let loot = Arc::<Mutex<Loot>>::default();
        let (shared, place) = (loot.clone(), folder.to_owned());
        let race = Race::start(move || {
            look(&place, 0, &mut shared.lock().unwrap_or_else(PoisonError::into_inner));
            std::thread::yield_now();
        });
        Self { race, loot, folder: folder.to_owned() }
    }

    /// Checks a last time, and returns all accesses that must not have succeeded.
    pub fn stop(self) -> Vec<String> {
        self.race.stop();
        let mut loot =
            std::mem::take(&mut *self.loot.lock().unwrap_or_else(PoisonError::into_inner));
        as_attacker(|| {
            look(&self.folder, 0, &mut loot);
            let stolen = loot.kept.iter().filter(|(_, file)| is_secret(file));
            let stolen: Vec<_> = stolen
                .map(|(path, _)| format!("a secret was readable: {}", path.display()))
                .collect();
            loot.wrong.extend(stolen);
        });
        loot.wrong.sort();
        loot.wrong.dedup();
        loot.wrong
    }
}

fn look(folder: &Path, depth: usize, loot: &mut Loot) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() && depth < DEEPEST {
            look(&path, depth + 1, loot);
        }
        // Opens regular files only: opening a FIFO would unblock a command that waits for a reader.
        if !meta.is_file() || meta.uid() != 0 {
            continue;
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Checks the owner again, because another thread may have replaced the entry with one of the attacker.
        let opened = open(&path, flags | OFlags::RDWR, Mode::empty());
        if opened.is_ok_and(|fd| fstat(fd).is_ok_and(|stat| stat.st_uid == 0)) {
            loot.wrong.push(format!("the attacker may write {}", path.display()));
        }
        let is_known = |(_, file): &(PathBuf, File)| {
            file.metadata().is_ok_and(|known| known.ino() == meta.ino())
        };
        if loot.kept.len() < MOST_KEPT
            && !loot.kept.iter().any(is_known)
            && let Ok(fd) = open(&path, flags | OFlags::RDONLY, Mode::empty())
        {
            loot.kept.push((path, File::from(fd)));
        }
    }
}
