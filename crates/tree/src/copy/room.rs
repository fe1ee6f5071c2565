//! Free space of the destination. A dry run compares it with the size of the files that it would copy.

use rustix::{
    fs::{FileType, Stat, fstatvfs},
    process::geteuid,
};
use std::{
    os::fd::BorrowedFd,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};
use thalweg_sys::host::{FileSystem, filesystem};

use crate::{
    Backup, CopyOptions, Event, Events, When,
    identity::{kind, size},
};

/// Space in the file system of the destination, and how much of it the copies would take.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    system: FileSystem,
    free: u64,
    needed: AtomicU64,
    /// Largest additional space while one file is replaced, in bytes. The old file occupies its space until the new one
    /// is complete.
    largest_replaced: AtomicU64,
}

impl FreeSpace {
    /// Asks the file system of the destination. Returns `None` if it does not report its size.
    pub fn of(base: BorrowedFd<'_>) -> Option<Self> {
        let space = fstatvfs(base).ok().filter(|space| space.f_blocks > 0)?;
        let blocks = if geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        Some(Self {
            system: filesystem(base).ok()?,
            free: blocks.saturating_mul(space.f_frsize),
            needed: AtomicU64::new(0),
            largest_replaced: AtomicU64::new(0),
        })
    }

    /// Adds the space for a file of `from` that would replace `there`. A file that may be cloned needs no space.
    pub fn count(
        &self,
        options: &CopyOptions,
        from: BorrowedFd<'_>,
        stat: &Stat,
        there: Option<&Stat>,
    ) {
        let is_counted = kind(stat) == FileType::RegularFile && !options.attributes_only;
        if !is_counted || (options.reflink != When::Never && self.may_clone(from, stat)) {
            return;
        }
        // Each hard link of a file adds an equal share of the space.
        let names = if options.preserve.links { stat.st_nlink.max(1) } else { 1 };
        let needed = allocated(stat) / names;
        let is_freed = |there: &&Stat| there.st_nlink < 2 && matches!(options.backup, Backup::None);
        let freed = there.filter(is_freed).map_or(0, allocated);
        if !options.inplace {
            self.largest_replaced.fetch_max(freed.min(needed), Ordering::Relaxed);
        }
        self.needed.fetch_add(needed.saturating_sub(freed), Ordering::Relaxed);
    }

    /// Returns `true` if the file may be cloned. Clones also work between subvolumes of one btrfs, which have
    /// different device numbers.
    fn may_clone(&self, from: BorrowedFd<'_>, stat: &Stat) -> bool {
        let is_btrfs = |system: &FileSystem| system.name == "btrfs";
        !self.system.is_known_without_clones()
            && (stat.st_dev == self.system.dev
                || (is_btrfs(&self.system) && filesystem(from).as_ref().is_ok_and(is_btrfs)))
    }

    /// Reports copies that need more space than is free.
    pub fn report(&self, destination: &Path, events: &dyn Events) {
        let all = [&self.needed, &self.largest_replaced].map(|n| n.load(Ordering::Relaxed));
        let (needed, free) = (all[0].saturating_add(all[1]), self.free);
        if needed > free {
            events.event(&Event::NoRoom { destination, needed, free });
        }
    }
}

/// Returns the bytes that a file occupies on disk, which excludes holes and considers compression.
fn allocated(stat: &Stat) -> u64 {
    size(stat).min((stat.st_blocks as u64).saturating_mul(512))
}
