//! Power cuts during syncs that delete entries, move them to a trash, or link to a reference.

use std::{fs, path::Path, process::Command};

use super::{
    command::CutCase,
    contents::{Hashes, hashes},
    place::Place,
};
use crate::support::{bytes, run};

/// The options of a sync, and the state of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// A new destination.
    New,
    /// `--delete`, which also detects a renamed file.
    Delete,
    /// `--delete --trash`.
    Trash,
    /// A new destination, with `--reference`.
    Reference,
}

impl SyncKind {
    /// Returns `true` if the sync deletes extra entries of the destination.
    pub fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::Trash)
    }

    pub fn words(self, place: &Place) -> Vec<String> {
        let on_disk = |option: &str| format!("--{option}={}", place.disk().join(option).display());
        match self {
            Self::New => Vec::new(),
            Self::Delete => vec!["--delete".into(), "--force".into()],
            Self::Trash => vec!["--delete".into(), "--force".into(), on_disk("trash")],
            Self::Reference => vec![on_disk("reference")],
        }
    }

    /// Prepares the disk. Adds extra files to the destination, of which SRC has one under another name, or makes a
    /// reference.
    pub fn prepare(self, tree: &Path, disk: &Path) {
        let copy =
            |from: &Path, to: &Path| run(Command::new("cp").arg("-a").args([from, to])).expect(0);
        if self.deletes() {
            let gone = disk.join("copy/gone/deep");
            fs::create_dir_all(&gone).unwrap();
            for n in 0..4 {
                bytes::write(&gone.join(n.to_string()), 200 + n, 20_000 * n);
            }
            copy(&tree.join("new"), &disk.join("copy/former"));
        }
        if self == Self::Reference {
            let reference = disk.join("reference");
            copy(tree, &reference);
            for name in ["middle", "deep/3"] {
                bytes::write(&reference.join(name), 300, 5000);
            }
        }
    }

    /// Checks the conditions that hold after a cut at any moment. Each old name has its old or its new content. Extra
    /// files may be missing only with `--delete`, and with `--fsync` only after all new files are on the disk. Missing
    /// files are in the trash, if there is one.
    pub fn judge(self, case: &CutCase, place: &Place, found: &Hashes) -> Result<(), String> {
        let new = place.expected(case);
        let trash = hashes(&place.disk().join("trash"))?;
        let mut gone = None;
        for (path, old) in place.old_hashes(case) {
            let now = found.get(path);
            if now.is_none() && !new.contains_key(path) {
                gone = Some(path);
            } else if now != Some(old) && now != new.get(path) {
                return Err(format!("{path} is neither old nor new: {now:?}"));
            }
            let is_kept =
                |(name, hash): (&String, &String)| name.starts_with(path.as_str()) && hash == old;
            if self == Self::Trash && now != Some(old) && !trash.iter().any(is_kept) {
                return Err(format!("the old {path} is neither there nor in the trash"));
            }
        }
        if let Some(path) = gone.filter(|_| case.durable)
            && let Some((lost, _)) = new.iter().find(|(name, hash)| found.get(*name) != Some(hash))
        {
            return Err(format!("{path} is deleted, and {lost} is not on the disk"));
        }
        self.judge_reference(place)
    }

    /// Checks that a sync has not changed its reference.
    fn judge_reference(self, place: &Place) -> Result<(), String> {
        if self != Self::Reference {
            return Ok(());
        }
        let expected = hashes(&place.tree())?;
        let found = hashes(&place.disk().join("reference"))?;
        let differs = |path: &&String| found.get(*path) != expected.get(*path);
        match expected.keys().filter(differs).map(String::as_str).collect::<Vec<_>>()[..] {
            ["./deep/3", "./middle"] => Ok(()),
            ref others => Err(format!("the reference differs in {others:?}")),
        }
    }
}
