//! Extended attributes and ACLs of entries that another machine lists.

use std::{ffi::CStr, os::fd::BorrowedFd};
use thalweg_core::atomic_file::CallFailed;
use thalweg_sys::Errno;

use crate::{
    Preserve,
    error::CopyFailure,
    holder::Holder,
    xattrs::{EntryXattrs, XattrOutcome},
};

/// The attributes that a sync keeps.
const KEPT: Preserve = Preserve::all();

impl EntryXattrs {
    /// Reads the attributes of an open file or directory.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::read(&Holder::Fd(fd))
    }

    /// Reads the attributes of the entry of an `O_PATH` descriptor.
    pub fn of_path_fd(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::read(&Holder::PathFd(fd))
    }

    /// Reads the attributes of an entry, without following a symbolic link.
    pub fn of_entry(directory: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        Self::read(&Holder::Entry { dir: directory, name, follows: false })
    }

    fn read(holder: &Holder<'_>) -> Result<Self, Errno> {
        Self::from(holder, KEPT).map_err(|failure| CallFailed::from(failure).errno)
    }

    /// Removes the attributes that a local sync by this user would not set.
    #[must_use]
    pub fn settable(self) -> Self {
        if self.is_empty() { self } else { self.kept_by(KEPT).settable_by(me()) }
    }

    /// Returns two values: whether the ACLs of an existing entry differ, and whether its other attributes differ. Both
    /// are `false` if the file system supports no attributes.
    pub fn differ_from(&self, directory: BorrowedFd<'_>, name: &CStr) -> (bool, bool) {
        let there = Holder::Entry { dir: directory, name, follows: false };
        match Self::from(&there, KEPT).map(|has| has.settable_by(me())) {
            Ok(has) if has != *self && there.may_have_any() => self.differs_from(&has),
            // Without /proc, extended attributes can be read only through a descriptor.
            Ok(_) | Err(CopyFailure::Source(_, Errno::NOENT)) => (false, false),
            // Reports a difference. The attempt to set the attributes then fails for the same reason and reports it.
            Err(_) => (false, true),
        }
    }

    /// Gives an open entry exactly these attributes. `mode` is its current mode. Returns `None` if nothing had to be
    /// changed.
    pub(super) fn give_exactly(
        &self,
        sink: &Holder<'_>,
        mode: u32,
    ) -> Result<Option<XattrOutcome>, CallFailed> {
        let has = match Self::from(sink, KEPT) {
            // Without /proc, the attributes of an `O_PATH` descriptor cannot be accessed.
            Err(CopyFailure::Source(_, Errno::NOENT)) if self.is_empty() => return Ok(None),
            has => has?.settable_by(me()),
        };
        if has == *self {
            return Ok(None);
        }
        let needs_write = [self, &has].iter().any(|all| all.ask_for_write_permission());
        if needs_write && mode & 0o200 == 0 && me() != 0 {
            sink.chmod(0o700)?;
        }
        self.remove_others(&has, sink)?;
        Ok(Some(self.give(sink, KEPT, false)))
    }
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
        assert!(roots.settable_by(1000).is_empty());
        let kept = of(&[c"user.x", c"system.posix_acl_access"]);
        assert_eq!(kept.clone().settable(), kept);
    }
}
