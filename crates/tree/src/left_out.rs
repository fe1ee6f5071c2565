//! Applies the caller's filter to an entry that is not open yet.

use rustix::fs::FileType;
use std::{
    ffi::CStr,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use crate::{
    CopyOptions,
    fs::list::type_of,
    names::{cut, os},
    sources::NamedSource,
};

/// An entry of a directory. Its type may still be unknown.
pub(crate) struct UntypedEntry<'a> {
    pub at: BorrowedFd<'a>,
    pub name: &'a CStr,
    /// The file type in the directory listing.
    pub listed: FileType,
    pub follow: bool,
}

impl UntypedEntry<'_> {
    pub fn is_directory(&self) -> bool {
        type_of(self.at, self.name, self.listed, self.follow)
            .is_ok_and(|kind| kind == FileType::Directory)
    }
}

impl CopyOptions {
    /// Returns `true` if the filter excludes a source that the caller named, or a directory on its path.
    pub(crate) fn leaves_out_source(&self, source: &NamedSource, is_directory: bool) -> bool {
        let Some(filter) = &self.filter else { return false };
        if self.inside.is_none() {
            let path = os(&source.source);
            let name = cut(Path::new(path)).1;
            // For `a/` or `.` the caller named the contents of the directory, so its name is not filtered.
            let is_contents = path.as_bytes().ends_with(b"/") || name == ".";
            return !is_contents && filter.leaves_out(&Path::new("..").join(name), is_directory);
        }
        let path = Path::new(os(&source.name));
        let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        path != Path::new(".")
            && (filter.leaves_out(path, is_directory)
                || above.any(|above| filter.leaves_out(above, true)))
    }

    /// Returns `true` if the filter excludes an entry of a directory. `path` is the path that
    /// [`Filter`](crate::Filter) receives.
    pub(crate) fn leaves_out_entry(
        &self,
        entry: &UntypedEntry<'_>,
        path: impl FnOnce() -> PathBuf,
    ) -> bool {
        let Some(filter) = &self.filter else { return false };
        filter.leaves_out(&path(), entry.is_directory())
    }
}
