//! Determines when the files of a copy reach stable storage.
//!
//! [`Fsync::Always`] syncs each file before it gets a visible name. [`Fsync::Auto`] syncs only files that replace
//! others. Files in a staging directory have no visible name yet, so one syncfs(2) before the directory is published
//! covers all of them.

use std::os::fd::OwnedFd;
use thalweg_core::atomic_file::{Fsync, failed};
use thalweg_sys::io;

use crate::{
    CopyOptions,
    copy::{
        dest::existing::Existing, directory::Directory, run::Concurrency, whole_sync::WholeSync,
    },
    error::{Attempt, CopyFailure},
};

/// The parts of one file that are synced before it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSync {
    Nothing,
    /// The bytes and the size (`fdatasync`).
    Data,
    /// The attributes too (`fsync`).
    All,
}

impl FileSync {
    /// Returns the sync for a copy in `directory` that replaces `there`. `elsewhere` is `true` if a symbolic link leads
    /// to a destination outside of the directory. `has_links` is `true` if other names are linked to the copy, which
    /// may replace other files.
    pub fn of(
        options: &CopyOptions,
        concurrency: Concurrency,
        directory: &Directory,
        there: Option<&Existing>,
        elsewhere: bool,
        has_links: bool,
    ) -> Self {
        // A pipe or a terminal stores nothing, so a sync would have no effect.
        if !there.is_none_or(Existing::can_be_read_again) {
            return Self::Nothing;
        }
        let is_hidden = directory.is_staged && !elsewhere;
        let is_concurrent = matches!(concurrency, Concurrency::Workers | Concurrency::Stragglers);
        let is_replaced =
            there.map_or(has_links && !directory.is_fresh, |there| !there.is_written_into(options));
        match options.fsync {
            Fsync::Always if is_hidden && directory.is_synced_whole => Self::Nothing,
            Fsync::Always => Self::All,
            Fsync::Auto if is_replaced && !is_hidden && !is_concurrent => Self::Data,
            Fsync::Auto | Fsync::Never => Self::Nothing,
        }
    }

    /// Returns `true` if a file that the copy keeps must be synced by itself: exit status 0 means that it is on stable
    /// storage, and no sync of the file system covers it.
    pub fn is_for_kept(options: &CopyOptions, directory: &Directory, elsewhere: bool) -> bool {
        options.fsync == Fsync::Always && (elsewhere || !directory.is_synced_whole)
    }

    /// Performs the sync. Also fails if an earlier sync of the file system `whole` failed. `len`: number of bytes written,
    /// for the error.
    pub fn perform(self, file: &OwnedFd, len: u64, whole: Option<&WholeSync>) -> Attempt<()> {
        let synced = match self {
            Self::Nothing => return Ok(()),
            Self::Data => io::sync_data(file).map_err(failed("fdatasync")),
            Self::All => io::sync(file).map_err(failed("fsync")),
        };
        let settled = WholeSync::settle(whole, synced);
        settled.map_err(|error| CopyFailure::Sink(error.call, error.errno, len))
    }
}
