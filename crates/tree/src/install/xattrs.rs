//! Extended attributes and ACLs of entries that another machine lists.

use rustix::fs::{Mode, fchmod};
use std::{
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
};
use thalweg_core::atomic_file::{CallFailed, failed};
use thalweg_sys::Errno;

use super::of_failure;
use crate::{
    Preserve,
    error::CopyFailure,
    xattrs::{Holder, SourceXattrs},
};

/// The attributes that a sync keeps, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryXattrs(SourceXattrs);

const KEPT: Preserve = Preserve::all();

impl EntryXattrs {
    /// Reads the attributes of an open file or directory.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::read(&Holder::Fd(fd))
    }

    /// Reads the attributes of the entry of an `O_PATH` descriptor.
    pub fn of_path_fd(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::read(&Holder::of_path_fd(fd))
    }

    /// Reads the attributes of an entry, without following a symbolic link.
    pub fn of_entry(directory: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        Self::read(&Holder::Entry { dir: directory, name, follows: false })
    }

    /// Returns attributes that another machine sent.
    pub fn of_pairs(pairs: Vec<(CString, Vec<u8>)>) -> Self {
        Self(SourceXattrs::of_pairs(pairs).sorted())
    }

    fn read(holder: &Holder<'_>) -> Result<Self, Errno> {
        match SourceXattrs::from(holder, KEPT) {
            Ok(taken) => Ok(Self(taken.sorted())),
            Err(CopyFailure::Source(_, errno)) => Err(errno),
            Err(_) => Err(Errno::IO),
        }
    }

    /// Returns names and values.
    pub fn pairs(&self) -> &[(CString, Vec<u8>)] {
        self.0.pairs()
    }

    /// Returns `true` if the entry has no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the attributes that a local sync by this user would not set.
    #[must_use]
    pub fn settable(self) -> Self {
        if self.is_empty() { self } else { Self(self.0.kept_by(KEPT).settable_by(me())) }
    }

    /// Returns two values: whether the ACLs of an existing entry differ, and whether its other attributes differ. Both
    /// are `false` if the file system supports no attributes.
    pub fn differ_from(&self, directory: BorrowedFd<'_>, name: &CStr) -> (bool, bool) {
        let there = Holder::Entry { dir: directory, name, follows: false };
        let has = SourceXattrs::from(&there, KEPT).map(|has| has.settable_by(me()).sorted());
        match has {
            Ok(has) if has != self.0 && there.may_have_any() => self.0.differs_from(&has),
            // Without /proc, extended attributes can be read only through a descriptor.
            Ok(_) | Err(CopyFailure::Source(_, Errno::NOENT)) => (false, false),
            // Reports a difference. The attempt to set the attributes then fails for the same reason and reports it.
            Err(_) => (false, true),
        }
    }

    /// Gives an open file or directory exactly these attributes. `mode` is its current mode. Returns `None` if nothing
    /// had to be changed.
    pub(super) fn give(
        &self,
        fd: BorrowedFd<'_>,
        mode: u32,
    ) -> Result<Option<GivenXattrs>, CallFailed> {
        let sink = Holder::Fd(fd);
        let has = Self::on(&sink)?;
        let needs_write = [&self.0, &has].iter().any(|all| all.ask_for_write_permission());
        if has != self.0 && needs_write && mode & 0o200 == 0 && me() != 0 {
            fchmod(fd, Mode::RWXU).map_err(failed("fchmod"))?;
        }
        self.give_in_place_of(&has, &sink)
    }

    /// Gives the entry of an `O_PATH` descriptor exactly these attributes.
    pub(super) fn give_to_path_fd(
        &self,
        fd: BorrowedFd<'_>,
    ) -> Result<Option<GivenXattrs>, CallFailed> {
        let sink = Holder::of_path_fd(fd);
        match Self::on(&sink) {
            // Without /proc, these attributes cannot be accessed.
            Err(CallFailed { errno: Errno::NOENT, .. }) if self.is_empty() => Ok(None),
            has => self.give_in_place_of(&has?, &sink),
        }
    }

    fn on(sink: &Holder<'_>) -> Result<SourceXattrs, CallFailed> {
        let has = SourceXattrs::from(sink, KEPT).map_err(|failure| of_failure(&failure))?;
        Ok(has.settable_by(me()).sorted())
    }

    fn give_in_place_of(
        &self,
        has: &SourceXattrs,
        sink: &Holder<'_>,
    ) -> Result<Option<GivenXattrs>, CallFailed> {
        if *has == self.0 {
            return Ok(None);
        }
        self.0.remove_others(has, sink).map_err(|failure| of_failure(&failure))?;
        let given = self.0.give(sink, KEPT, false);
        given.answer.map_err(|failure| of_failure(&failure))?;
        Ok(Some(GivenXattrs { allowed: given.allowed, refused: given.dropped.len() as u64 }))
    }
}

/// The result of setting attributes.
pub(super) struct GivenXattrs {
    /// Permission bits that the file may have. If the file system refused an ACL, they grant no more access than the
    /// ACL.
    pub allowed: u32,
    /// Number of attributes that the file system refused.
    pub refused: u64,
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_sets_nothing_that_a_local_sync_does_not_set() {
        let of = |names: &[&CStr]| {
            EntryXattrs::of_pairs(names.iter().map(|name| ((*name).to_owned(), vec![1])).collect())
        };
        let never =
            [c"security.evm", c"security.selinux", c"system.nfs4_acl", c"trusted.SGI_ACL_FILE"];
        assert!(of(&never).settable().is_empty());
        let roots = of(&[c"security.capability", c"trusted.x"]);
        assert_eq!(roots.clone().settable().is_empty(), me() != 0);
        assert!(roots.0.settable_by(1000).is_empty());
        let kept = of(&[c"user.x", c"system.posix_acl_access"]);
        assert_eq!(kept.clone().settable(), kept);
    }
}
