//! Extended attributes, and the ACLs that the kernel presents as extended attributes.

use rustix::fs;
use std::{
    ffi::{CStr, CString},
    os::fd::BorrowedFd,
};
use thalweg_sys::Errno;

use crate::{
    Preserve, acl,
    error::{Attempt, CopyFailure, SET_ACCESS_LIST, SET_DEFAULT_LIST, at_source},
    holder::Holder,
};

/// All permission bits except set-id and sticky.
pub(crate) const ALL: u32 = 0o777;

const ACCESS_LIST: &CStr = c"system.posix_acl_access";
const DEFAULT_LIST: &CStr = c"system.posix_acl_default";

/// Returns `true` if a directory has a default ACL, which new entries inherit.
pub(crate) fn has_default_list(dir: BorrowedFd<'_>) -> bool {
    fs::fgetxattr_query(dir, DEFAULT_LIST).is_ok_and(|size| size > 0)
}

/// Result of setting attributes on a destination.
pub(crate) struct XattrOutcome {
    /// The first failure.
    pub answer: Attempt<()>,
    /// The attributes that the destination refused.
    pub dropped: Vec<(CString, Errno)>,
    /// Permission bits that grant no more access than the refused ACL; all bits if no ACL was refused.
    pub allowed: u32,
}

impl XattrOutcome {
    fn fail(&mut self, failure: CopyFailure) {
        if self.answer.is_ok() {
            self.answer = Err(failure);
        }
    }
}

impl Default for XattrOutcome {
    fn default() -> Self {
        Self { answer: Ok(()), dropped: Vec::new(), allowed: ALL }
    }
}

/// Extended attributes and ACLs of an entry, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryXattrs(Vec<(CString, Vec<u8>)>);

impl EntryXattrs {
    /// Reads the attributes that `keep` selects.
    pub(crate) fn from(source: &Holder<'_>, keep: Preserve) -> Attempt<Self> {
        if !keep.looks_at_xattrs() {
            return Ok(Self::default());
        }
        // Most files have no attributes. A buffer on the stack then needs one call and no allocation.
        let mut room = [0; 1024];
        let long;
        let names = match source.list(&mut room) {
            Ok(len) => room.get(..len).unwrap_or_default(),
            Err(Errno::RANGE) => {
                long = grow(|buffer| source.list(buffer)).map_err(at_source("flistxattr"))?;
                &long
            }
            Err(errno) if has_none(errno) => &[],
            Err(errno) => return Err(CopyFailure::Source("flistxattr", errno)),
        };
        let names = names.split_inclusive(|byte| *byte == 0);
        let names = names.filter_map(|bytes| CStr::from_bytes_with_nul(bytes).ok());
        let mut taken = Vec::new();
        for name in names.filter(|name| is_kept(name, keep)) {
            match grow(|buffer| source.get(name, buffer)) {
                Ok(value) => taken.push((name.to_owned(), value)),
                // The attribute was removed after it was listed, or the file system cannot return its value.
                Err(errno) if has_none(errno) => {}
                Err(errno) => return Err(CopyFailure::Source("fgetxattr", errno)),
            }
        }
        Ok(Self::of_pairs(taken))
    }

    /// Reads the attributes for a comparison. Those of a file without access to /proc count as none.
    pub(crate) fn compared(source: &Holder<'_>, keep: Preserve) -> Attempt<Self> {
        match Self::from(source, keep) {
            Err(CopyFailure::Source(_, Errno::NOENT)) => Ok(Self::default()),
            answer => answer,
        }
    }

    /// Returns attributes that another machine sent.
    pub fn of_pairs(mut pairs: Vec<(CString, Vec<u8>)>) -> Self {
        pairs.sort_unstable();
        Self(pairs)
    }

    /// Removes the attributes that `keep` does not select.
    pub(crate) fn kept_by(mut self, keep: Preserve) -> Self {
        self.0.retain(|(name, _)| is_kept(name, keep));
        self
    }

    /// Returns names and values.
    pub fn pairs(&self) -> &[(CString, Vec<u8>)] {
        &self.0
    }

    /// Removes the attributes that only root can set, unless `uid` is root.
    pub(crate) fn settable_by(mut self, uid: u32) -> Self {
        self.0.retain(|(name, _)| uid == 0 || !is_roots(name));
        self
    }

    /// Returns two values: whether the ACLs differ, and whether other attributes differ.
    pub(crate) fn differs_from(&self, other: &Self) -> (bool, bool) {
        let differs = |lists: bool| {
            let of = |taken: &'_ Self| -> Vec<(CString, Vec<u8>)> {
                taken.0.iter().filter(|(name, _)| is_list(name) == lists).cloned().collect()
            };
            of(self) != of(other)
        };
        if self == other { (false, false) } else { (differs(true), differs(false)) }
    }

    /// Removes the attributes of `sink` that are not in `self`. `there`: the current attributes of `sink`.
    pub(crate) fn remove_others(&self, there: &Self, sink: &Holder<'_>) -> Attempt<()> {
        let mut first = Ok(());
        for (name, _) in &there.0 {
            let is_wanted = self.0.iter().any(|(wanted, _)| wanted == name);
            if !is_wanted
                && let Err(errno) = sink.remove(name)
                && !has_none(errno)
                && first.is_ok()
            {
                first = Err(CopyFailure::Sink("fremovexattr", errno, 0));
            }
        }
        first
    }

    /// Removes the file capabilities, which the kernel clears when any process writes to the file.
    pub(crate) fn without_capabilities(mut self) -> Self {
        self.0.retain(|(name, _)| **name != *c"security.capability");
        self
    }

    /// Returns `true` if the entry has no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if `user.` attributes are among them. Setting these requires write permission to the file
    /// (xattr(7)), even with a descriptor that is open for writing.
    pub(crate) fn ask_for_write_permission(&self) -> bool {
        self.0.iter().any(|(name, _)| name.to_bytes().starts_with(b"user."))
    }

    /// Sets the attributes and continues after a failure. `born_with_acl`: the destination may have inherited ACLs
    /// that the source does not have.
    pub(crate) fn give(
        &self,
        sink: &Holder<'_>,
        keep: Preserve,
        born_with_acl: bool,
    ) -> XattrOutcome {
        let mut given = XattrOutcome::default();
        if born_with_acl && keep.acl {
            for list in [ACCESS_LIST, DEFAULT_LIST] {
                if self.0.iter().all(|(name, _)| **name != *list) {
                    let _ = sink.remove(list);
                }
            }
        }
        // ACLs are set last, because an ACL may remove the permission to set the other attributes.
        let (lists, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|(name, _)| is_list(name));
        for (name, value) in others {
            match sink.set(name, value) {
                Ok(()) => {}
                Err(errno) if !keep.strict && is_refusal(errno) => {
                    given.dropped.push((name.clone(), errno));
                }
                Err(errno) => given.fail(CopyFailure::Sink("fsetxattr", errno, 0)),
            }
        }
        for (name, value) in lists {
            let Err(errno) = sink.set(name, value) else { continue };
            if **name == *DEFAULT_LIST {
                given.fail(CopyFailure::Sink(SET_DEFAULT_LIST, errno, 0));
            } else if !acl::is_trivial(value) {
                given.allowed = acl::allowed_without(value);
                given.fail(CopyFailure::Sink(SET_ACCESS_LIST, errno, 0));
            }
        }
        given
    }
}

/// Returns `true` for an attribute that only root can set.
pub(crate) fn is_roots(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.") || name.to_bytes().starts_with(b"trusted.")
}

/// Returns `true` if the errno means that the attribute does not exist or attributes are unsupported.
fn has_none(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Returns `true` if the destination does not support this name or size. ext4 has room for about one block.
fn is_refusal(errno: Errno) -> bool {
    let has_no_room = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE);
    let is_unsupported = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS);
    has_no_room || is_unsupported || matches!(errno, Errno::PERM | Errno::ACCESS)
}

fn is_list(name: &CStr) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST
}

fn is_kept(name: &CStr, keep: Preserve) -> bool {
    if is_list(name) {
        return keep.acl;
    }
    // Excludes attributes that only show other preserved data: everything in `system.` except ACLs, and the XFS form of
    // ACLs. A policy sets the SELinux label of a new file, unless the caller requests the label of the source. The
    // kernel sets the EVM attribute.
    let name = name.to_bytes();
    if name == b"security.selinux" {
        return keep.context;
    }
    let is_view = name.starts_with(b"system.") || name.starts_with(b"trusted.SGI_");
    keep.xattrs && !is_view && name != b"security.evm"
}

/// Repeats `call` with a larger buffer until the value fits. The value may grow between two calls.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    // XATTR_SIZE_MAX and XATTR_LIST_MAX are both 64 KiB.
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_the_mode_and_labels_stay_behind() {
        let usual = Preserve::usual();
        assert!(is_kept(ACCESS_LIST, usual) && !is_kept(c"user.x", usual));
        let all = Preserve::all();
        assert!(is_kept(c"user.x", all) && is_kept(c"security.capability", all));
        assert!(!is_kept(c"security.selinux", all) && !is_kept(c"system.nfs4_acl", all));
    }

    #[test]
    fn a_long_answer_is_asked_for_again() {
        let mut calls = 0;
        let answer = grow(|buffer| {
            calls += 1;
            if buffer.len() < 3000 { Err(Errno::RANGE) } else { Ok(3000) }
        });
        assert_eq!((answer.map(|a| a.len()), calls), (Ok(3000), 3));
        assert_eq!(grow(|_| Err(Errno::RANGE)), Err(Errno::RANGE));
    }
}
