//! Makes FIFOs, sockets and device nodes anew.

use rustix::fs::{AtFlags, FileType, Mode, mknodat, statat};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use crate::{
    copy::{copy_entry::CopyEntry, worker::Worker},
    error::{Attempt, at_source},
};

impl Worker<'_> {
    /// Makes a special file like the source.
    pub fn special(&mut self, entry: &CopyEntry<'_>, kind: FileType) -> Attempt<()> {
        let stat = statat(entry.from.open()?, entry.source, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(at_source("newfstatat"))?;
        let mode = self.run.options.new_mode.unwrap_or(stat.st_mode);
        let mode = Mode::from_raw_mode(mode & 0o777);
        let made =
            self.make_node(entry, &stat, "mknodat", |dir: BorrowedFd<'_>, name: &CStr| {
                mknodat(dir, name, kind, mode, stat.st_rdev)
            })?;
        if made {
            self.tally.links = self.tally.links.saturating_sub(1);
            self.tally.specials += 1;
        }
        Ok(())
    }
}
