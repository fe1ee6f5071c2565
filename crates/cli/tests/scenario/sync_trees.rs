//! Random trees and random edits for the tests of `thalweg sync`, and a record of a tree, made without code of thalweg.

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    lgetxattr, linkat, llistxattr, lsetxattr, mknodat, utimensat,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};
use thalweg_testing::Dice;

use crate::support::Ran;

const NAMES: [&str; 6] = ["a", "b", "c d", "e", "f\u{e9}", "g"];
/// The state file of a sync, which is not part of a tree.
pub const STATE: &str = ".thalweg-sync";

/// Returns the lines of standard output, sorted.
pub fn lines(ran: &Ran) -> Vec<String> {
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn choose<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.below(of.len() as u64) as usize]
}

fn path_below(dice: &mut Dice, root: &Path) -> PathBuf {
    let depth = 1 + dice.below(3);
    (0..depth).fold(root.to_owned(), |path, _| path.join(choose(dice, &NAMES)))
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn remove_file(path: &Path) {
    if !is_directory(path) {
        let _ = fs::remove_file(path);
    }
}

/// Makes some random changes below a directory. Changes that are impossible there are left out.
pub fn edit(dice: &mut Dice, root: &Path, changes: u64) {
    for _ in 0..changes {
        let path = path_below(dice, root);
        if path.parent().is_none_or(|parent| fs::create_dir_all(parent).is_err()) {
            continue;
        }
        change(dice, root, &path);
    }
}

fn change(dice: &mut Dice, root: &Path, path: &Path) {
    match dice.below(12) {
        0..=2 => {
            remove_file(path);
            let len = if dice.below(20) == 0 { 200_000 } else { dice.below(3000) };
            let bytes: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
            let _ = fs::write(path, bytes);
        }
        3 => {
            remove_file(path);
            let target = path_below(dice, Path::new(""));
            let _ = symlink(target, path);
        }
        4 if is_directory(path) => drop(fs::remove_dir_all(path)),
        4 => remove_file(path),
        5 if !path.is_symlink() => {
            let mode = Mode::from_raw_mode(choose(dice, &[0o600, 0o644, 0o755, 0o700]));
            let _ = chmodat(CWD, path, mode, AtFlags::empty());
        }
        6 => {
            let ids = [0, 1, 1000];
            let (uid, gid) = (Uid::from_raw(choose(dice, &ids)), Gid::from_raw(choose(dice, &ids)));
            let _ = chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        }
        7 => {
            let tv_sec = 1_000_000_000 + dice.below(500_000_000) as i64;
            let time = Timespec { tv_sec, tv_nsec: dice.below(1_000_000_000) as _ };
            let times = Timestamps { last_access: time, last_modification: time };
            let _ = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
        8 => {
            let name = choose(dice, &["user.x", "user.y"]);
            let value = dice.below(1000).to_string();
            let _ = lsetxattr(path, name, value.as_bytes(), XattrFlags::empty());
        }
        9 => {
            let other = path_below(dice, root);
            let _ = linkat(CWD, path, CWD, &other, AtFlags::empty());
        }
        10 => drop(fs::create_dir_all(path)),
        _ => drop(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)),
    }
}

/// The properties of one entry that a sync makes equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    content: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl EntryRecord {
    pub fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// The entries of a tree, and the groups of hard links.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TreeRecord {
    pub entries: BTreeMap<PathBuf, EntryRecord>,
    pub links: BTreeSet<Vec<PathBuf>>,
}

pub fn record(root: &Path) -> TreeRecord {
    let mut tree = TreeRecord::default();
    let mut files: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        let path = root.join(&below);
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
            left.extend(names.filter(|name| name != STATE).map(|name| below.join(name)));
        } else if meta.nlink() > 1 {
            files.entry(meta.ino()).or_default().push(below.clone());
        }
        let content = match meta.file_type() {
            kind if kind.is_file() => fs::read(&path).unwrap(),
            kind if kind.is_symlink() => {
                fs::read_link(&path).unwrap().into_os_string().as_bytes().to_owned()
            }
            _ => Vec::new(),
        };
        tree.entries.insert(
            below,
            EntryRecord {
                mode: meta.mode(),
                owner: (meta.uid(), meta.gid()),
                mtime: (meta.mtime(), meta.mtime_nsec()),
                content,
                xattrs: xattrs(&path),
            },
        );
    }
    for mut names in files.into_values().filter(|names| names.len() > 1) {
        names.sort();
        tree.links.insert(names);
    }
    tree
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut names, mut value) = ([0; 4096], [0; 4096]);
    let len = llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut all: Vec<_> = names
        .map(|name| {
            let len = lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap_or(0);
            (name.to_owned(), value[..len].to_owned())
        })
        .collect();
    all.sort();
    all
}
