//! The entries that the other user prepares before root runs a command. They are made with the attacker's credentials,
//! so there is no device node, which only root can create.

use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
};

use super::{
    arena::chmod,
    attacker::Race,
    commands::{Makes, Row},
    swaps,
    victim::{Victim, evil, fifo, plant},
};

/// Files, threads and sockets that the attacker keeps while the command runs.
#[derive(Default)]
pub struct Held {
    /// Open files, some of them with a lock.
    pub files: Vec<File>,
    pub races: Vec<Race>,
    sockets: Vec<UnixListener>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Under names that thalweg uses for unfinished work.
    Hidden,
    /// Under the name of the command's result.
    Target,
    /// Entries that change while the command runs.
    Swapped,
}

pub struct Trap {
    pub name: &'static str,
    pub place: Place,
    pub lay: fn(&Victim, &mut Held),
}

const fn hidden(name: &'static str, lay: fn(&Victim, &mut Held)) -> Trap {
    Trap { name, place: Place::Hidden, lay }
}

const fn target(name: &'static str, lay: fn(&Victim, &mut Held)) -> Trap {
    Trap { name, place: Place::Target, lay }
}

const fn swapped(name: &'static str, lay: fn(&Victim, &mut Held)) -> Trap {
    Trap { name, place: Place::Swapped, lay }
}

pub const TRAPS: &[Trap] = &[
    hidden("part with a text", |v, _| drop(plant(&v.part(), &evil(v.size()), 0o644))),
    hidden("empty part kept open", |v, held| held.files.push(plant(&v.part(), "", 0o666))),
    hidden("part with mode 0600 kept open", |v, held| {
        held.files.push(plant(&v.part(), &evil(v.size()), 0o600));
    }),
    hidden("part and journal", part_and_journal),
    hidden("journal alone", |v, _| v.write_journal(&v.journal())),
    hidden("staging directory with journal", staging_directory),
    hidden("staging directory kept open", |v, held| {
        open_folder(&v.part(), held);
    }),
    hidden("fleet directory with a tree", fleet_directory),
    hidden("empty fleet directory", |v, held| open_folder(&v.fleet(), held)),
    hidden("file as fleet directory", |v, _| drop(plant(&v.fleet(), "", 0o666))),
    hidden("FIFO as part", |v, _| fifo(&v.part())),
    hidden("FIFO as journal", |v, _| fifo(&v.journal())),
    hidden("FIFO under each hidden name", |v, _| {
        v.hidden_names().iter().for_each(|name| fifo(name));
    }),
    hidden("hard link as part", |v, held| hard_link(v, &v.part(), held)),
    hidden("hard link as journal", |v, held| hard_link(v, &v.journal(), held)),
    hidden("symbolic link as part", |v, _| link(&v.canary.join("secret"), &v.part())),
    hidden("symbolic link as journal", |v, _| link(&v.canary.join("config"), &v.journal())),
    hidden("symbolic link as fleet directory", |v, _| link(&v.canary.join("folder"), &v.fleet())),
    hidden("symbolic link as staging directory", |v, _| link(&v.canary.join("folder"), &v.part())),
    hidden("symbolic links to nothing", |v, _| {
        v.hidden_names().iter().for_each(|name| link(&v.canary.join("new"), name));
    }),
    hidden("socket as part", |v, held| socket(&v.part(), held)),
    hidden("lock on the directory", |v, held| lock(File::open(&v.d).unwrap(), held)),
    hidden("lock on the part", |v, held| lock(plant(&v.part(), "", 0o666), held)),
    hidden("lock on every hidden name", |v, held| {
        v.hidden_names().iter().for_each(|name| lock(plant(name, "", 0o666), held));
    }),
    hidden("lock on a staging directory", |v, held| {
        v.plant_tree_or_folder(&v.part());
        lock(File::open(v.part()).unwrap(), held);
    }),
    target("symbolic link to a file of root", |v, _| link(&v.canary.join("config"), &v.target())),
    target("symbolic link to a secret of root", |v, _| link(&v.canary.join("secret"), &v.target())),
    target("symbolic link to a directory of root", |v, _| {
        link(&v.canary.join("folder"), &v.target());
    }),
    target("symbolic link to nothing", |v, _| link(&v.canary.join("new"), &v.target())),
    target("FIFO", |v, _| fifo(&v.target())),
    target("file kept open", |v, held| held.files.push(plant(&v.target(), "", 0o666))),
    target("hard link", |v, held| hard_link(v, &v.target(), held)),
    target("socket", |v, held| socket(&v.target(), held)),
    target("directory", |v, held| open_folder(&v.target(), held)),
    swapped("part swapped", |v, held| held.races.push(swaps::kinds(v, v.part()))),
    swapped("journal swapped", |v, held| held.races.push(swaps::kinds(v, v.journal()))),
    swapped("staging directory swapped", |v, held| held.races.push(swaps::folders(v, v.part()))),
    swapped("fleet directory swapped", |v, held| held.races.push(swaps::folders(v, v.fleet()))),
    swapped("target swapped", |v, held| held.races.push(swaps::file_and_link(v, v.target()))),
];

impl Trap {
    /// Returns the trap with this name.
    pub fn named(name: &str) -> &'static Self {
        TRAPS.iter().find(|trap| trap.name == name).unwrap()
    }

    /// Returns `true` if the trap is useful for the command.
    pub fn fits(&self, row: &Row) -> bool {
        // If the target is already a directory, `cp` and `copy` make `tree/tree`, so these traps do not fit.
        let is_merge = self.place == Place::Target
            && ["directory", "symbolic link to a directory of root"].contains(&self.name)
            && !matches!(row.makes, Makes::Texts);
        !is_merge
    }

    /// Returns `true` if the command may fail because of the trap.
    pub fn may_block(&self, row: &Row) -> bool {
        let has_fleet = self.name.contains("fleet") || self.name.contains("hidden name");
        let is_dangling = self.name == "symbolic links to nothing";
        let is_in_the_way = self.place == Place::Target || self.name == "target swapped";
        is_in_the_way || (row.has_fixed_name && (has_fleet || is_dangling))
    }
}

fn part_and_journal(v: &Victim, held: &mut Held) {
    held.files.push(plant(&v.part(), &evil(v.size()), 0o666));
    v.write_journal(&v.journal());
}

fn staging_directory(v: &Victim, _: &mut Held) {
    v.plant_tree_or_folder(&v.part());
    v.write_journal(&v.part().join(".thalweg-journal"));
}

fn fleet_directory(v: &Victim, _: &mut Held) {
    fs::create_dir(v.fleet()).unwrap();
    chmod(&v.fleet(), 0o777);
    v.plant_tree_or_folder(&v.fleet().join("tree"));
    fs::create_dir(v.fleet().join("parts")).unwrap();
    chmod(&v.fleet().join("parts"), 0o777);
}

fn open_folder(path: &Path, held: &mut Held) {
    fs::create_dir(path).unwrap();
    chmod(path, 0o777);
    held.files.push(File::open(path).unwrap());
}

fn hard_link(v: &Victim, path: &Path, held: &mut Held) {
    // protected_hardlinks lets the attacker link only a file that it owns or may write.
    held.files.push(plant(&v.d.join("own file"), &evil(v.size()), 0o666));
    fs::hard_link(v.d.join("own file"), path).unwrap();
}

fn link(to: &Path, path: &Path) {
    symlink(to, path).unwrap();
}

fn socket(path: &Path, held: &mut Held) {
    held.sockets.push(UnixListener::bind(path).unwrap());
}

fn lock(file: File, held: &mut Held) {
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    held.files.push(file);
}

impl Victim {
    /// Makes a tree like the source, or a directory with one file for a command that makes one file.
    fn plant_tree_or_folder(&self, path: &Path) {
        if self.makes_tree {
            return self.plant_tree(path);
        }
        fs::create_dir(path).unwrap();
        chmod(path, 0o777);
        plant(&path.join("file"), &evil(self.size()), 0o666);
    }
}
