//! The commands during which the power is cut.

use std::{
    ffi::OsStr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{contents::Hashes, place::Place, sync::SyncKind};
use crate::support::{Ran, Running, thalweg};
use thalweg_testing::Dice;

/// The command that writes the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutCommand {
    /// `copy -aT` of the tree, with these options.
    CopyTree(&'static [&'static str]),
    /// A worker of a fleet, which continues an earlier run without `--resume`.
    Fleet,
    /// `send` and `receive` of the files of the tree.
    Receive,
    /// `fetch` of the files of the tree.
    Fetch,
    /// `fetch -r` of the tree.
    FetchTree,
    /// `sync` of the tree.
    Sync(SyncKind),
    /// `move` of the tree, which is on a read-only disk: everything is copied, and nothing can be deleted.
    Move,
}

/// A command in one situation.
pub struct CutCase {
    pub name: &'static str,
    pub command: CutCommand,
    /// `true` if the destination exists and holds old files.
    pub replaces: bool,
    /// `true` if the command runs with `--fsync`: completed files must be on the disk.
    pub durable: bool,
}

use CutCommand::{CopyTree, Fetch, FetchTree, Fleet, Move, Receive, Sync};

#[rustfmt::skip]
pub const CASES: [CutCase; 20] = [
    CutCase { name: "copy", command: CopyTree(&[]), replaces: false, durable: false },
    CutCase { name: "copy-fsync", command: CopyTree(&[]), replaces: false, durable: true },
    CutCase { name: "copy-parallel", command: CopyTree(&["--method=read-write-parallel"]), replaces: false, durable: false },
    CutCase { name: "copy-into", command: CopyTree(&[]), replaces: true, durable: false },
    CutCase { name: "copy-into-fsync", command: CopyTree(&[]), replaces: true, durable: true },
    CutCase { name: "receive", command: Receive, replaces: true, durable: false },
    CutCase { name: "receive-fsync", command: Receive, replaces: true, durable: true },
    CutCase { name: "fetch", command: Fetch, replaces: true, durable: false },
    CutCase { name: "fetch-fsync", command: Fetch, replaces: true, durable: true },
    CutCase { name: "fetch-tree", command: FetchTree, replaces: false, durable: false },
    CutCase { name: "fetch-tree-into", command: FetchTree, replaces: true, durable: false },
    CutCase { name: "fetch-tree-fsync", command: FetchTree, replaces: false, durable: true },
    CutCase { name: "fleet", command: Fleet, replaces: false, durable: false },
    CutCase { name: "fleet-fsync", command: Fleet, replaces: false, durable: true },
    CutCase { name: "sync", command: Sync(SyncKind::New), replaces: false, durable: false },
    CutCase { name: "sync-into", command: Sync(SyncKind::Delete), replaces: true, durable: false },
    CutCase { name: "sync-into-fsync", command: Sync(SyncKind::Delete), replaces: true, durable: true },
    CutCase { name: "sync-trash", command: Sync(SyncKind::Trash), replaces: true, durable: false },
    CutCase { name: "sync-reference", command: Sync(SyncKind::Reference), replaces: false, durable: false },
    CutCase { name: "move", command: Move, replaces: false, durable: true },
];

impl CutCase {
    pub fn named(name: &str) -> &'static Self {
        CASES.iter().find(|case| case.name == name).expect("a command of CASES")
    }

    /// Returns `true` if the destination is a copy of the whole tree, not only of its files.
    pub fn copies_tree(&self) -> bool {
        !matches!(self.command, Receive | Fetch)
    }

    /// Returns `true` if the destination has the attributes of the tree, and the same hard links.
    pub fn keeps_attributes(&self) -> bool {
        match self.command {
            Sync(kind) => !matches!(kind, SyncKind::Reference | SyncKind::Trash),
            _ => matches!(self.command, CopyTree(_) | Fleet | Move),
        }
    }

    /// The kind of a sync.
    pub fn sync_kind(&self) -> Option<SyncKind> {
        if let Sync(kind) = self.command { Some(kind) } else { None }
    }

    /// The exit status of a complete run.
    pub fn exit_status(&self) -> i32 {
        i32::from(self.command == Move)
    }

    /// Returns options that are chosen at random for each run of a case.
    pub fn chosen_words(&self, dice: &mut Dice) -> Vec<String> {
        let mut words = Vec::new();
        let mut chance = |word: &str, percent| {
            if dice.within(0..100) < percent {
                words.push(word.to_owned());
            }
        };
        match self.command {
            Receive => chance("--as-bytes", 50),
            _ => chance("--limit=8M", 60),
        }
        if matches!(self.command, CopyTree(_)) {
            chance("--resume", 50);
        }
        if !matches!(self.command, Receive | Fetch) {
            chance("--jobs=2", 50);
        }
        words
    }

    /// Runs the command to its end. `wrap` changes the process that writes to the disk.
    pub fn run(&self, place: &Place, words: &[String], wrap: impl Fn(&Command) -> Command) -> Ran {
        let name = format!("thalweg-cut-{}-{}", std::process::id(), next_number());
        let sending = (self.command == Receive).then(|| {
            let mut send = thalweg();
            send.args(["send", "--to", &name]).args(words).args(place.files());
            Running::start(&mut send)
        });
        let ran = Running::start(&mut wrap(&self.writer(place, words, &name))).finish();
        drop(sending);
        ran
    }

    /// Returns the command that writes to the disk.
    fn writer(&self, place: &Place, words: &[String], socket: &str) -> Command {
        let copy = place.copy();
        let mut command = thalweg();
        match self.command {
            CopyTree(more) => command.args(["copy", "-aT"]).args(more).args(words),
            Fleet => command.args(["copy", "-a", "--shard=0/1", "--shard-size=256K"]).args(words),
            Receive => command.args(["receive", "-f", "--from", socket]),
            Fetch => command.args(["fetch", "-f"]).args(words),
            FetchTree => command.args(["fetch", "-r"]).args(words),
            Sync(kind) => command.arg("sync").args(kind.words(place)).args(words),
            Move => command.arg("move").args(words),
        };
        if self.durable && self.command != Move {
            command.arg("--fsync");
        }
        match self.command {
            CopyTree(_) | Fleet | Sync(_) | Move => command.args([place.tree(), copy]),
            Receive => command.arg(copy),
            Fetch => command.args(place.urls()).arg(copy),
            FetchTree => command.arg(place.url("tree/")).arg(copy),
        };
        command
    }

    /// Checks the conditions that hold after a cut at any moment. A replaced file has its old or its new content. A new
    /// file of `fetch` is absent or complete.
    pub fn judge_names(&self, place: &Place, found: &Hashes) -> Result<(), String> {
        if let Some(kind) = self.sync_kind() {
            return kind.judge(self, place, found);
        }
        let new = place.expected(self);
        for (path, old) in place.old_hashes(self) {
            let now = found.get(path);
            if now != Some(old) && now != new.get(path) {
                return Err(format!("{path} is neither old nor new: {now:?}"));
            }
        }
        if self.command != Fetch {
            return Ok(());
        }
        let is_wrong = |(path, hash): &(&String, &String)| {
            !place.old_hashes(self).contains_key(*path) && new.get(*path) != Some(*hash)
        };
        found.iter().find(is_wrong).map_or(Ok(()), |(path, _)| Err(format!("{path} is not whole")))
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Relaxed)
}

/// Returns a message about a run that failed.
pub fn unsuccessful(what: &str, ran: &Ran, folder: &Path) -> String {
    format!("{what} ended with {:?} on {}: {}", ran.status.code(), folder.display(), ran.said())
}

/// Returns the command unchanged, for a run without a wrapper.
pub fn same_command(command: &Command) -> Command {
    with_environment(Command::new(command.get_program()), command, command.get_args())
}

/// Adds words to `wrapped`, and sets the environment of another command for it.
pub fn with_environment<'a>(
    mut wrapped: Command,
    command: &Command,
    words: impl Iterator<Item = &'a OsStr>,
) -> Command {
    wrapped.args(words);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}
