//! Open directories of a walk. If descriptors are scarce, those that were opened first are closed. A closed directory
//! is opened again by name or through `..` when it is needed, and its identity is checked.

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_sys::Errno;

use super::beneath::open_directory;
use crate::{identity::Id, threads::locked};

/// The open directories of a run that can be closed and opened again.
#[derive(Debug)]
pub(crate) struct DirectoryCache {
    most: usize,
    open: Mutex<OpenOrder>,
}

// The slots by number. A counter assigns the numbers, so the first slot was opened first. `last` is the newest number.
#[derive(Debug, Default)]
struct OpenOrder {
    slots: BTreeMap<u64, Arc<CacheSlot>>,
    last: u64,
}

/// The descriptor of a directory, while it is open.
#[derive(Debug)]
struct CacheSlot {
    fd: Mutex<Option<Arc<OwnedFd>>>,
    // The key of this slot in `OpenOrder::slots`.
    number: AtomicU64,
}

impl CacheSlot {
    /// Closes the directory if it is not in use. Returns `true` if it is closed.
    fn give_up(&self) -> bool {
        let mut fd = locked(&self.fd);
        let is_idle = fd.as_ref().is_none_or(|fd| Arc::strong_count(fd) == 1);
        if is_idle {
            *fd = None;
        }
        is_idle
    }
}

impl DirectoryCache {
    /// Creates a cache that keeps `most` directories open.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// Returns how many directories one worker may enter inside each other. Such directories are in use, so the cache
    /// cannot close them.
    pub fn to_use(&self) -> usize {
        self.most / 8
    }

    /// Returns how many directories of a reopened path stay open, counted from the last one. The next directory that is
    /// needed is probably among them. If all stayed open, source and destination directories of several workers would
    /// evict each other.
    fn on_one_way(&self) -> usize {
        (self.most / 4).max(1)
    }

    /// Closes all directories that are not in use.
    pub fn close_idle(&self) {
        Self::shorten(&mut locked(&self.open), 0);
    }

    fn add(&self, slot: &Arc<CacheSlot>) {
        let mut line = locked(&self.open);
        line.last += 1;
        let number = line.last;
        slot.number.store(number, Ordering::Relaxed);
        line.slots.insert(number, Arc::clone(slot));
        Self::shorten(&mut line, self.most);
    }

    fn remove(&self, slot: &CacheSlot) {
        locked(&self.open).slots.remove(&slot.number.load(Ordering::Relaxed));
    }

    fn shorten(line: &mut OpenOrder, most: usize) {
        let excess = line.slots.len().saturating_sub(most);
        let given_up: Vec<u64> = (line.slots.iter())
            .filter(|(_, slot)| slot.give_up())
            .map(|(number, _)| *number)
            .take(excess)
            .collect();
        for number in given_up {
            line.slots.remove(&number);
        }
    }
}

/// A directory that is open or can be opened again.
#[derive(Debug)]
pub(crate) struct CachedDirectory {
    slot: Arc<CacheSlot>,
    // `None`: the directory stays open, because it holds a lock or cannot be found by name.
    kept: Option<Arc<DirectoryCache>>,
    /// The identity of the directory.
    pub id: Id,
    // The name in the parent, or the path if `above` is `None`.
    name: CString,
    above: Option<Arc<CachedDirectory>>,
    flags: OFlags,
}

/// The information needed to open a directory again.
pub(crate) struct ReopenAddress<'w> {
    pub above: Option<&'w Arc<CachedDirectory>>,
    pub name: &'w CStr,
    /// The flags with which it was opened.
    pub flags: OFlags,
}

impl CachedDirectory {
    /// Creates a directory that can be closed and opened again. If `kept` is `None`, it stays open.
    pub fn new(
        fd: OwnedFd,
        id: Id,
        at: &ReopenAddress<'_>,
        kept: Option<&Arc<DirectoryCache>>,
    ) -> Arc<Self> {
        let (name, above) = (at.name.to_owned(), at.above.cloned());
        let fd = Mutex::new(Some(Arc::new(fd)));
        let slot = Arc::new(CacheSlot { fd, number: AtomicU64::new(0) });
        if let Some(kept) = kept {
            kept.add(&slot);
        }
        Arc::new(Self { slot, kept: kept.cloned(), id, name, above, flags: at.flags })
    }

    /// Returns the open directory. It is not closed while the caller holds the result.
    pub fn open(&self) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = &*locked(&self.slot.fd) {
            return Ok(Arc::clone(fd));
        }
        self.reopen()
    }

    fn reopen(&self) -> Result<Arc<OwnedFd>, Errno> {
        let (mut missing, mut next) = (Vec::new(), Some(self));
        let mut at = loop {
            let Some(folder) = next else { break None };
            if let Some(fd) = &*locked(&folder.slot.fd) {
                break Some(Arc::clone(fd));
            }
            missing.push(folder);
            next = folder.above.as_deref();
        };
        let keeps = self.kept.as_ref().map_or(1, |kept| kept.on_one_way());
        for (distance, folder) in missing.into_iter().enumerate().rev() {
            let dir = at.as_ref().map_or(CWD, |fd| fd.as_fd());
            let fd = folder.recognised(open_directory(dir, &*folder.name, folder.flags)?)?;
            at = Some(if distance < keeps { folder.holds(fd) } else { Arc::new(fd) });
        }
        at.ok_or(Errno::NOENT)
    }

    /// Opens the parent through `..` if it is closed.
    fn open_above(&self) {
        let Some(above) = &self.above else { return };
        let own = locked(&self.slot.fd).clone();
        if let Some(own) = own
            && locked(&above.slot.fd).is_none()
            // If the parent was moved or cannot be read, it is opened by name when it is needed.
            && let Ok(fd) = openat(&*own, c"..", above.flags, Mode::empty())
            && let Ok(fd) = above.recognised(fd)
        {
            drop(own);
            above.holds(fd);
        }
    }

    fn recognised(&self, fd: OwnedFd) -> Result<OwnedFd, Errno> {
        if Id::of(&fstat(&fd)?) == self.id { Ok(fd) } else { Err(Errno::STALE) }
    }

    /// Stores a new descriptor of the directory, unless another thread already did.
    fn holds(&self, fd: OwnedFd) -> Arc<OwnedFd> {
        let mut slot = locked(&self.slot.fd);
        if let Some(fd) = &*slot {
            return Arc::clone(fd);
        }
        let fd = Arc::new(fd);
        *slot = Some(Arc::clone(&fd));
        drop(slot);
        if let Some(kept) = &self.kept {
            kept.add(&self.slot);
        }
        fd
    }

    /// Called when the last user of this directory is done. The walk then continues in the parent, which is opened
    /// through `..` in one step. Opening it by names would take one step per level.
    fn end(&mut self) {
        self.open_above();
        if let Some(kept) = &self.kept {
            kept.remove(&self.slot);
        }
        *locked(&self.slot.fd) = None;
    }
}

impl Drop for CachedDirectory {
    fn drop(&mut self) {
        self.end();
        // The parents are dropped in a loop, because a recursion on a deep tree would overflow the stack.
        let mut above = self.above.take();
        while let Some(mut folder) = above.and_then(Arc::into_inner) {
            folder.end();
            above = folder.above.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::list::DIRECTORY;
    use std::{fs, os::unix::ffi::OsStrExt, path::Path};

    fn opened(
        path: &Path,
        above: Option<&Arc<CachedDirectory>>,
        kept: &Arc<DirectoryCache>,
    ) -> Arc<CachedDirectory> {
        let fd: OwnedFd = fs::File::open(path).unwrap().into();
        let id = Id::of(&fstat(&fd).unwrap());
        let name = if above.is_some() { Path::new(path.file_name().unwrap()) } else { path };
        let name = CString::new(name.as_os_str().as_bytes()).unwrap();
        CachedDirectory::new(
            fd,
            id,
            &ReopenAddress { above, name: &name, flags: DIRECTORY },
            Some(kept),
        )
    }

    fn is_open(folder: &CachedDirectory) -> bool {
        locked(&folder.slot.fd).is_some()
    }

    #[test]
    fn what_was_given_up_is_found_again_from_above_and_from_below() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b/c")).unwrap();
        let kept = DirectoryCache::new(2);
        let a = opened(&place.path().join("a"), None, &kept);
        let b = opened(&place.path().join("a/b"), Some(&a), &kept);
        let in_use = a.open().unwrap();
        let c = opened(&place.path().join("a/b/c"), Some(&b), &kept);
        assert!(is_open(&a) && !is_open(&b) && is_open(&c));
        let again = b.open().unwrap();
        assert_eq!(Id::of(&fstat(&*again).unwrap()), b.id);
        assert!(!is_open(&c), "the one that is not in use goes");
        drop((in_use, again));
        let in_use = c.open().unwrap();
        assert!(!is_open(&a) && is_open(&b) && is_open(&c), "the first that was opened goes");
        kept.close_idle();
        assert!(!is_open(&b) && is_open(&c));
        drop(in_use);
        drop(c);
        assert!(is_open(&b) && !is_open(&a), "the walk goes on there");
        drop(b);
        assert!(is_open(&a));
        drop(a);
        assert!(locked(&kept.open).slots.is_empty());
    }

    #[test]
    fn another_directory_of_the_name_is_not_taken_for_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b/c")).unwrap();
        let kept = DirectoryCache::new(1);
        let a = opened(&place.path().join("a"), None, &kept);
        let b = opened(&place.path().join("a/b"), Some(&a), &kept);
        let c = opened(&place.path().join("a/b/c"), Some(&b), &kept);
        fs::rename(place.path().join("a/b"), place.path().join("a/moved")).unwrap();
        fs::create_dir(place.path().join("a/b")).unwrap();
        let in_use = c.open().unwrap();
        assert!(!is_open(&b));
        assert_eq!(b.open().unwrap_err(), Errno::STALE);
        drop(in_use);
        c.open().unwrap();
        drop(c);
        assert!(is_open(&b), "the way up leads to it whatever its name");
    }

    #[test]
    fn a_chain_deeper_than_the_stack_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let kept = DirectoryCache::new(1);
        let top = opened(place.path(), None, &kept);
        let mut folder = Arc::clone(&top);
        for _ in 0..100_000 {
            let slot = Arc::new(CacheSlot { fd: Mutex::new(None), number: AtomicU64::new(0) });
            let (name, above, flags) = (c"d".to_owned(), Some(folder), DIRECTORY);
            let kept = Some(Arc::clone(&kept));
            folder = Arc::new(CachedDirectory { slot, kept, id: top.id, name, above, flags });
        }
        drop(folder);
        assert!(is_open(&top));
    }
}
