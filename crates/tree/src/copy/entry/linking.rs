//! Links to the files of the source in the place of copies of them (`cp -l`, `cp -s`).

use rustix::fs::{AtFlags, CWD, Stat, linkat, statat, symlinkat};
use std::os::fd::AsFd;

use crate::{
    Becomes, Refusal, Skip,
    copy::{
        dest::conflict::{Verdict, resolve_conflict},
        leaf::Leaf,
        worker::Worker,
    },
    error::{Attempt, Failure, at_source},
    identity::Id,
};

impl Worker<'_> {
    /// Makes a link to anything but a directory. `follow`: to what the source leads to.
    pub fn link_to_source(&mut self, leaf: &Leaf<'_>, follow: bool) -> Attempt<()> {
        let look = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let from = leaf.from.open()?;
        let stat = statat(&from, leaf.source, look).map_err(at_source("newfstatat"))?;
        self.run.expect_not_listed_over(&stat, || leaf.source_path());
        if self.run.options.becomes == Becomes::HardLink {
            let how = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            let link = |dir: std::os::fd::BorrowedFd<'_>, name: &std::ffi::CStr| {
                linkat(&from, leaf.source, dir, name, how)
            };
            return self.make_node(leaf, &stat, "linkat", link).map(drop);
        }
        let target = leaf.source_path();
        if target.is_relative() && !is_current(leaf) {
            // As in cp: where an existing file is left as it is, no link has to be made.
            return match self.reason_to_leave(leaf, &stat) {
                Some(reason) => {
                    self.skip(leaf, reason);
                    Ok(())
                }
                None => Err(Failure::Refused(Refusal::RelativeLink)),
            };
        }
        self.make_node(leaf, &stat, "symlinkat", |dir, name| symlinkat(&*target, dir, name))?;
        Ok(())
    }

    /// Why an existing destination is left as it is, by `-n`, `-u` or an answer to `-i`.
    fn reason_to_leave(&self, leaf: &Leaf<'_>, source: &Stat) -> Option<Skip> {
        let dir = leaf.directory.open().ok().flatten().filter(|_| !leaf.directory.is_fresh)?;
        match resolve_conflict(self.run, leaf, dir.as_fd(), source) {
            Ok(Verdict::Skip(reason, _)) => Some(reason),
            _ => None,
        }
    }
}

/// Whether the link is made where its relative path leads from.
fn is_current(leaf: &Leaf<'_>) -> bool {
    let current = statat(CWD, c".", AtFlags::empty());
    current.is_ok_and(|current| Id::of(&current) == leaf.directory.own)
}
