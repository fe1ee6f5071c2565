//! Decides whether a copy would destroy its own source, by the rules of GNU `cp`.

use rustix::fs::{AtFlags, CWD, FileType, Stat, fstat, stat, statat};
use std::{os::fd::BorrowedFd, path::Path};

use crate::{
    Backup, Becomes, CopyOptions,
    copy::copy_entry::{CopyEntry, SourceDirectory},
    error::Attempt,
    identity::{Id, kind},
    names::os,
};

/// The relation of a source to an existing destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The destination may be replaced.
    Apart,
    /// The destination is already the wanted link, so the copy is skipped.
    Linked,
    /// Replacing it would destroy the source.
    Same,
}

/// Compares source and destination. Links were followed for `source` and `there` if the options demand it.
/// `there_name`: the attributes of the destination name itself, if they were read too.
pub(crate) fn relation(
    options: &CopyOptions,
    entry: &CopyEntry<'_>,
    dir: BorrowedFd<'_>,
    source: &Stat,
    there: &Stat,
    there_name: Option<&Stat>,
) -> Attempt<Relation> {
    let same = Id::of(source) == Id::of(there);
    if same && options.becomes == Becomes::HardLink {
        return Ok(Relation::Linked);
    }
    let follows = options.follows(entry.named_by_caller());
    if follows && !same {
        // If source and destination are one name, the backup renames it. The copy could then not read the source, not
        // even through a link.
        let is_itself = options.backup != Backup::None && is_one_entry(entry, dir);
        return Ok(if is_itself { Relation::Same } else { Relation::Apart });
    }
    let itself = AtFlags::SYMLINK_NOFOLLOW;
    let from = entry.from.open()?;
    // If links are not followed, `source` already has the attributes of the name itself.
    let source_name = if follows { statat(&from, entry.source, itself) } else { Ok(*source) };
    let there_name = there_name.map_or_else(|| statat(dir, entry.name, itself), |stat| Ok(*stat));
    let (Ok(source), Ok(there)) = (source_name, there_name) else { return Ok(Relation::Apart) };
    let names = ComparedNames { options, entry, dir, source, there };
    if let Some(relation) = names.relation(follows) {
        return Ok(relation);
    }
    // If a copied link replaced its own target, the link would point to itself and the contents would be lost.
    let targets =
        (statat(&from, entry.source, AtFlags::empty()), statat(dir, entry.name, AtFlags::empty()));
    Ok(match targets {
        (Ok(one), Ok(other)) if Id::of(&one) == Id::of(&other) => {
            if options.becomes != Becomes::HardLink {
                Relation::Same
            } else if is_link(&there) {
                Relation::Apart
            } else {
                Relation::Linked
            }
        }
        _ => Relation::Apart,
    })
}

/// Two names, and the attributes of the entries themselves.
struct ComparedNames<'a> {
    options: &'a CopyOptions,
    entry: &'a CopyEntry<'a>,
    dir: BorrowedFd<'a>,
    source: Stat,
    there: Stat,
}

impl ComparedNames<'_> {
    /// Returns the relation, or `None` if it depends on the targets of the links.
    fn relation(&self, follows: bool) -> Option<Relation> {
        let (options, source, there) = (self.options, &self.source, &self.there);
        let answer = |fine: bool| Some(if fine { Relation::Apart } else { Relation::Same });
        let one_entry = || is_one_entry(self.entry, self.dir);
        let same_name = Id::of(source) == Id::of(there);
        if is_link(source) && is_link(there) {
            if follows && options.remove_destination {
                return Some(Relation::Apart);
            }
            if !follows {
                let hard_linked = same_name && options.backup == Backup::None && !one_entry();
                return if hard_linked { Some(Relation::Linked) } else { answer(!one_entry()) };
            }
        }
        if options.backup != Backup::None {
            // The source is a link to the destination, and would dangle after the destination is renamed.
            let dangles = follows && is_link(source) && !is_link(there);
            return answer(if same_name { !one_entry() } else { !dangles });
        }
        if options.remove_destination {
            let other_name = same_name && there.st_nlink > 1 && !one_entry();
            if is_link(there) || other_name {
                return Some(Relation::Apart);
            }
        }
        if !is_link(source) && !is_link(there) {
            return answer(!same_name);
        }
        if options.becomes == Becomes::SymbolicLink && is_link(there) {
            return Some(Relation::Apart);
        }
        follows.then_some(Relation::Same)
    }
}

fn is_link(stat: &Stat) -> bool {
    kind(stat) == FileType::Symlink
}

/// Returns `true` if source and destination are one directory entry, not two names of one file.
fn is_one_entry(entry: &CopyEntry<'_>, dir: BorrowedFd<'_>) -> bool {
    let path = Path::new(os(entry.source));
    let is_named_alike = path.file_name() == Some(os(entry.name));
    let above = match (path.parent(), entry.from) {
        (Some(above), SourceDirectory::Caller) if above.as_os_str().is_empty() => stat(c"."),
        (Some(above), SourceDirectory::Caller) => statat(CWD, above, AtFlags::empty()),
        (None, SourceDirectory::Caller) => return false,
        (_, SourceDirectory::Named(fd)) => fstat(fd),
        (_, SourceDirectory::Listed(folder)) => {
            return folder.id == entry.directory.own && is_named_alike;
        }
    };
    let (Ok(above), Ok(dir)) = (above, fstat(dir)) else { return false };
    Id::of(&above) == Id::of(&dir) && is_named_alike
}
