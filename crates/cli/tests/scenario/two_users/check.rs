//! Judges a run by the file system as root and the attacker see it, without code of thalweg.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    arena::{Arena, EVIL, SECRET},
    attacker::{UID, as_attacker},
    commands::{Makes, Row},
    lurker::Lurker,
    traps::Held,
};
use crate::support::Ran;

/// Every entry below some directories, with the properties that must not change.
pub type Snapshot = BTreeMap<PathBuf, String>;

/// The entries of `d` before a command runs: inode and owner.
pub type Before = BTreeMap<PathBuf, (u64, u32)>;

pub struct Case<'a> {
    pub arena: &'a Arena,
    pub row: &'a Row,
    pub before: Before,
    pub outside: Snapshot,
    /// `true` if the trap changes its entries while the command runs.
    pub races: bool,
    /// `true` if the command may refuse to run.
    pub may_refuse: bool,
}

impl Case<'_> {
    /// Returns all problems after the command.
    pub fn problems(&self, ran: &Ran, held: &Held, lurker: Lurker) -> Vec<String> {
        let mut wrong = lurker.stop();
        wrong.extend(use_kept_descriptors(held));
        wrong.extend(self.outcome(ran));
        wrong.extend(self.leftovers());
        let outside = outside(self.arena);
        for (path, was) in &self.outside {
            let is = outside.get(path);
            if is != Some(was) {
                wrong.push(format!("{} changed: {was} -> {is:?}", path.display()));
            }
        }
        let new = outside.keys().filter(|path| !self.outside.contains_key(*path));
        wrong.extend(new.map(|path| format!("{} is new", path.display())));
        wrong
    }

    fn outcome(&self, ran: &Ran) -> Vec<String> {
        let mut wrong = Vec::new();
        if ran.stderr.contains("panicked at") {
            wrong.push(format!("panic: {}", ran.stderr));
        }
        let target = self.arena.d().join(self.row.target);
        let code = ran.status.code();
        match code {
            Some(0) => wrong.extend(self.published(&target)),
            Some(124 | 137) => wrong.push(format!("hangs: {}", ran.stderr)),
            Some(1 | 3 | 4) => {
                if !self.may_refuse {
                    wrong.push(format!("exit status {code:?}: {}", ran.stderr.trim()));
                }
                if ran.stderr.trim().is_empty() {
                    wrong.push("fails without a word".to_owned());
                }
                wrong.extend(self.untouched(&target));
            }
            _ => wrong.push(format!("exit status {code:?}: {}", ran.stderr.trim())),
        }
        wrong
    }

    /// Returns a problem if a failed command has changed the entry with the target's name.
    fn untouched(&self, target: &Path) -> Option<String> {
        let is = fs::symlink_metadata(target).ok().map(|meta| (meta.ino(), meta.uid()));
        let was = self.before.get(target).copied();
        let is_kept = self.races || is == was;
        (!is_kept).then(|| format!("failed, and the target is {is:?} where {was:?} was"))
    }

    fn published(&self, target: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        match self.row.makes {
            Makes::Copy { source, mode_bits } => {
                compare(&self.arena.own(source), target, mode_bits, &mut wrong);
            }
            Makes::Text => text(target, &mut wrong),
            Makes::Texts => texts(target, &mut wrong),
        }
        wrong
    }

    /// Returns new entries except the target, and missing entries of the attacker.
    fn leftovers(&self) -> Vec<String> {
        let target = self.arena.d().join(self.row.target);
        let after = entries(&self.arena.d());
        let is_news = |path: &&PathBuf| **path != target && !self.before.contains_key(*path);
        let mut wrong: Vec<String> = Vec::new();
        for path in after.keys().filter(is_news) {
            if !self.races || after[path].1 != UID {
                wrong.push(format!("left behind: {}", path.display()));
            }
        }
        if !self.races {
            let gone = self.before.iter().filter(|(path, was)| {
                **path != target && after.get(*path) != Some(*was) && was.1 == UID
            });
            wrong.extend(gone.map(|(path, _)| format!("removed or taken: {}", path.display())));
        }
        wrong
    }
}

/// Reads and writes through the descriptors that the attacker has kept.
fn use_kept_descriptors(held: &Held) -> Vec<String> {
    as_attacker(|| {
        let mut wrong = Vec::new();
        for file in &held.files {
            if is_secret(file) {
                wrong.push("a secret is readable through a kept descriptor".to_owned());
            }
            let _ = file.write_at(EVIL.as_bytes(), 0);
        }
        wrong
    })
}

pub fn is_secret(file: &File) -> bool {
    let mut start = vec![0; 1 << 20];
    let len = file.read_at(&mut start, 0).unwrap_or(0);
    contains(&start[..len], SECRET)
}

pub fn contains(bytes: &[u8], text: &str) -> bool {
    // The first 16 bytes suffice, because the text is repeated and the file may start or end within it.
    let text = &text.as_bytes()[..16];
    bytes.windows(text.len()).any(|window| window == text)
}

/// Checks that a copy has the bytes of its source, root as its owner and the documented mode.
pub fn compare(source: &Path, target: &Path, mode_bits: u32, wrong: &mut Vec<String>) {
    let name = target.display();
    let from = fs::symlink_metadata(source).unwrap();
    let Ok(to) = fs::symlink_metadata(target) else {
        return wrong.push(format!("{name} is missing"));
    };
    if from.file_type() != to.file_type() {
        return wrong.push(format!("{name} is {:?}", to.file_type()));
    }
    owned(target, &to, wrong);
    if !to.is_symlink() && from.mode() & mode_bits != to.mode() & ALL_BITS {
        wrong.push(format!("{name} has mode {:o} instead of {:o}", to.mode(), from.mode()));
    }
    if to.is_dir() {
        let names = |path: &Path| -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        if names(source) != names(target) {
            wrong.push(format!("{name} holds {:?}", names(target)));
        }
        for entry in names(source) {
            compare(&source.join(&entry), &target.join(&entry), mode_bits, wrong);
        }
    } else if to.is_file() && fs::read(source).unwrap() != fs::read(target).unwrap() {
        let evil = contains(&fs::read(target).unwrap(), EVIL);
        wrong.push(format!("{name} differs from its source; the attacker's text: {evil}"));
    } else if to.is_symlink() && fs::read_link(source).unwrap() != fs::read_link(target).unwrap() {
        wrong.push(format!("{name} leads elsewhere"));
    }
}

const ALL_BITS: u32 = 0o7777;

fn owned(path: &Path, meta: &Metadata, wrong: &mut Vec<String>) {
    if (meta.uid(), meta.gid()) != (0, 0) {
        let (uid, gid) = (meta.uid(), meta.gid());
        wrong.push(format!("{} belongs to {uid}:{gid}", path.display()));
    }
}

fn text(target: &Path, wrong: &mut Vec<String>) {
    let name = target.display();
    let Ok(meta) = fs::symlink_metadata(target) else {
        return wrong.push(format!("{name} is missing"));
    };
    owned(target, &meta, wrong);
    if !meta.is_file() {
        return wrong.push(format!("{name} is {:?}", meta.file_type()));
    }
    if meta.mode() & ALL_BITS != 0o644 {
        wrong.push(format!("{name} has mode {:o}", meta.mode()));
    }
    let bytes = fs::read(target).unwrap();
    if bytes.is_empty() || contains(&bytes, EVIL) {
        wrong.push(format!("{name} has the attacker's text, or none"));
    }
}

fn texts(target: &Path, wrong: &mut Vec<String>) {
    let Ok(meta) = fs::symlink_metadata(target) else {
        return wrong.push(format!("{} is missing", target.display()));
    };
    if !meta.is_dir() {
        return text(target, wrong);
    }
    owned(target, &meta, wrong);
    for entry in fs::read_dir(target).unwrap() {
        texts(&entry.unwrap().path(), wrong);
    }
}

/// Returns the entries of a directory, each with inode and owner.
pub fn entries(folder: &Path) -> Before {
    let listed = fs::read_dir(folder).unwrap().flatten();
    let known = |entry: fs::DirEntry| {
        let meta = fs::symlink_metadata(entry.path()).ok()?;
        Some((entry.path(), (meta.ino(), meta.uid())))
    };
    listed.filter_map(known).collect()
}

/// Returns root's files outside of `d`.
pub fn outside(arena: &Arena) -> Snapshot {
    let mut found = Snapshot::new();
    for folder in [arena.canary(), arena.own("")] {
        note(&folder, &mut found);
    }
    found
}

fn note(path: &Path, found: &mut Snapshot) {
    // Ignores the sessions that an interrupted study saves in the home of its user.
    if path.ends_with("thalweg/unfinished-studies") {
        return;
    }
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    if kind.is_socket() {
        return;
    }
    // The kernel sets the time of change with every write and every change of owner or mode.
    let of_file = (meta.len(), meta.ctime(), meta.ctime_nsec());
    let of_file = kind.is_file().then(|| (of_file, start_of(path)));
    let (of, mode) = ((meta.uid(), meta.gid(), meta.ino()), meta.mode());
    found.insert(path.to_owned(), format!("mode {mode:o}, of {of:?}, {of_file:?}"));
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            note(&entry.unwrap().path(), found);
        }
    }
}

/// Returns the start of a file, to show in a message.
fn start_of(path: &Path) -> String {
    let mut start = [0; 60];
    let len = File::open(path).and_then(|file| file.read_at(&mut start, 0)).unwrap_or(0);
    String::from_utf8_lossy(&start[..len]).into_owned()
}
