//! Cached name lists of directories, shared by all answers. An answer to a slow client holds a position, not the list.
//! All lists together stay within their share of `--memory`; a dropped list is read again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{SeekFrom, fstat, seek},
};
use thalweg_sys::Errno;

use super::{
    names::{NameList, ReadRules},
    version::FileVersion,
};

/// Position of an answer in a directory.
#[derive(Clone, Debug, Default)]
pub struct NameCursor {
    /// Version of the directory at the start of the answer.
    version: Option<FileVersion>,
    /// The last name that was used. Empty at the start.
    pub after: Vec<u8>,
}

/// The name lists of a server.
#[derive(Debug)]
pub struct NameCache {
    /// Maximum memory, in bytes, of all lists together.
    most: u64,
    with_hidden: bool,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    lists: Vec<CachedList>,
    /// Memory, in bytes, of lists that are being read.
    building: u64,
}

#[derive(Debug)]
struct CachedList {
    version: FileVersion,
    /// The list contains only names greater than this one.
    after: Vec<u8>,
    list: Arc<NameList>,
    /// `true` if any later change of the directory is certain to change its timestamps. Only then may new answers use
    /// the list.
    is_settled: bool,
    used: Instant,
}

/// A name list, or the reason why it is not available.
pub enum NameLookup {
    /// A list that contains the next names, if there are any.
    Listed(Arc<NameList>),
    /// The directory is large and not cached. It must be read in the lane for large directories (see `tasks`).
    Large,
}

/// Maximum number of cached lists.
const LISTS: usize = 256;
/// Time after which an unused list is dropped.
const KEPT: Duration = Duration::from_secs(10);
/// Size, in bytes, from which a directory counts as large. File systems need 20 bytes or more per entry.
const LARGE: i64 = 1 << 20;
/// Minimum memory for lists, in bytes, so that every answer makes progress.
const LEAST: u64 = 256 << 10;
/// Memory of a list in addition to its names, in bytes.
const OVERHEAD: u64 = 256;

impl NameCache {
    /// Creates an empty cache of at most `most` bytes.
    pub fn new(most: u64, with_hidden: bool) -> Self {
        Self { most: most.max(LEAST), with_hidden, state: Mutex::default() }
    }

    /// Returns a list with the names after the cursor. A large directory that is not cached is read only if `may_sort`
    /// is `true`. `check_cancelled` is called regularly during the read; if it returns an error, the read ends.
    pub fn names(
        &self,
        directory: &OwnedFd,
        cursor: &mut NameCursor,
        may_sort: bool,
        check_cancelled: impl Fn() -> Result<(), Errno>,
    ) -> Result<NameLookup, Errno> {
        if let Some(list) = cursor.version.and_then(|version| self.cached(&version, &cursor.after))
        {
            return Ok(NameLookup::Listed(list));
        }
        let stat = fstat(directory)?;
        let version = FileVersion::of(&stat);
        cursor.version = Some(version);
        if let Some(list) = self.cached_new(&version, &cursor.after) {
            return Ok(NameLookup::Listed(list));
        }
        if stat.st_size >= LARGE && !may_sort {
            return Ok(NameLookup::Large);
        }
        let is_settled = version.is_settled(SystemTime::now());
        let list = Arc::new(self.read(directory, &cursor.after, check_cancelled)?);
        let after = cursor.after.clone();
        let cached = CachedList {
            version,
            after,
            list: Arc::clone(&list),
            is_settled,
            used: Instant::now(),
        };
        self.keep(cached);
        Ok(NameLookup::Listed(list))
    }

    /// Returns `true` if all names of a directory are cached for a new answer and there are at most `most` of them.
    pub fn is_at_hand(&self, directory: impl AsFd, most: usize) -> bool {
        let Ok(stat) = fstat(directory) else { return false };
        let list = self.cached_new(&FileVersion::of(&stat), b"");
        list.is_some_and(|list| !list.is_partial() && list.count() <= most)
    }

    /// Drops the lists that have not been used for [`KEPT`].
    pub fn expire(&self) {
        self.lock().lists.retain(|cached| cached.used.elapsed() < KEPT);
    }

    /// Returns `true` if no list is cached.
    pub fn is_empty(&self) -> bool {
        self.lock().lists.is_empty()
    }

    /// Returns the memory of all lists, in bytes.
    pub fn held(&self) -> u64 {
        self.lock().held()
    }

    fn cached(&self, version: &FileVersion, after: &[u8]) -> Option<Arc<NameList>> {
        self.find(version, after, |_| true)
    }

    fn cached_new(&self, version: &FileVersion, after: &[u8]) -> Option<Arc<NameList>> {
        self.find(version, after, |cached| cached.is_settled)
    }

    fn find(
        &self,
        version: &FileVersion,
        after: &[u8],
        is_right: impl Fn(&CachedList) -> bool,
    ) -> Option<Arc<NameList>> {
        let mut state = self.lock();
        let found = state.lists.iter_mut().find(|cached| {
            cached.version == *version
                && &*cached.after <= after
                && (!cached.list.is_partial()
                    || cached.list.last().is_some_and(|last| after < last))
                && is_right(cached)
        })?;
        found.used = Instant::now();
        Some(Arc::clone(&found.list))
    }

    fn read(
        &self,
        directory: &OwnedFd,
        after: &[u8],
        check_cancelled: impl Fn() -> Result<(), Errno>,
    ) -> Result<NameList, Errno> {
        // An earlier read has moved the directory offset to the end.
        seek(directory, SeekFrom::Start(0))?;
        let mut reserved = Reserved { cache: self, bytes: 0 };
        // While it is read, a list needs 1.5 times its final memory.
        let room = self.most.saturating_sub(self.lock().building) / 3 * 2;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let rules = ReadRules { with_hidden: self.with_hidden, after, room };
        NameList::read(directory, &rules, |bytes| {
            reserved.grow(bytes as u64);
            check_cancelled()
        })
    }

    fn keep(&self, cached: CachedList) {
        let mut state = self.lock();
        let is_same = |other: &CachedList| {
            // Lists of earlier versions are dropped too, because no new answer can use them.
            other.version.is_same_file(&cached.version) && *other.after == *cached.after
        };
        state.lists.retain(|other| !is_same(other));
        state.make_room(self.most.saturating_sub(cached.held()), LISTS - 1);
        state.lists.push(cached);
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory reserved for a list that is being read.
struct Reserved<'c> {
    cache: &'c NameCache,
    bytes: u64,
}

impl Reserved<'_> {
    fn grow(&mut self, bytes: u64) {
        if bytes == self.bytes {
            return;
        }
        let mut state = self.cache.lock();
        state.building = (state.building - self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        let most = self.cache.most.saturating_sub(state.building);
        state.make_room(most, LISTS);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.cache.lock().building -= self.bytes;
    }
}

impl CachedList {
    fn held(&self) -> u64 {
        self.list.held() as u64 + self.after.capacity() as u64 + OVERHEAD
    }
}

impl CacheState {
    fn held(&self) -> u64 {
        self.lists.iter().map(CachedList::held).sum()
    }

    /// Drops the least recently used lists until at most `count` lists with at most `most` bytes remain.
    fn make_room(&mut self, most: u64, count: usize) {
        while self.lists.len() > count || self.held() > most {
            let ages = self.lists.iter().enumerate();
            let Some((oldest, _)) = ages.min_by_key(|(_, cached)| cached.used) else { return };
            self.lists.swap_remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir, remove_file};

    fn directory(path: &std::path::Path, names: usize) -> OwnedFd {
        create_dir(path).unwrap();
        for name in 0..names {
            File::create(path.join(format!("a name of some length {name:06}"))).unwrap();
        }
        File::open(path).unwrap().into()
    }

    fn names(cache: &NameCache, directory: &OwnedFd, cursor: &mut NameCursor) -> Arc<NameList> {
        match cache.names(directory, cursor, true, || Ok(())) {
            Ok(NameLookup::Listed(list)) => list,
            Ok(NameLookup::Large) => panic!("large"),
            Err(errno) => panic!("{errno}"),
        }
    }

    #[test]
    fn answers_share_a_list_until_the_directory_changes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("d");
        let (cache, fd) = (NameCache::new(1 << 20, false), directory(&path, 100));
        std::thread::sleep(Duration::from_millis(50));
        let first = names(&cache, &fd, &mut NameCursor::default());
        assert!(cache.is_at_hand(&fd, 100) && !cache.is_at_hand(&fd, 99));
        let mut cursor = NameCursor::default();
        assert!(Arc::ptr_eq(&first, &names(&cache, &fd, &mut cursor)));
        remove_file(path.join("a name of some length 000007")).unwrap();
        assert!(!cache.is_at_hand(&fd, 100));
        assert_eq!(names(&cache, &fd, &mut NameCursor::default()).count(), 99);
        assert_eq!(cache.lock().lists.len(), 1, "the list of the earlier version is gone");
    }

    #[test]
    fn lists_together_stay_within_their_memory() {
        let place = tempfile::tempdir().unwrap();
        let cache = NameCache::new(0, false);
        for number in 0..3 {
            let path = place.path().join(number.to_string());
            let fd = directory(&path, 8000);
            let (mut cursor, mut found) = (NameCursor::default(), 0);
            loop {
                let list = names(&cache, &fd, &mut cursor);
                assert!(cache.held() <= LEAST, "{} bytes", cache.held());
                found += list.count() - list.place_after(&cursor.after);
                if !list.is_partial() {
                    break;
                }
                cursor.after = list.last().unwrap().to_vec();
            }
            assert_eq!(found, 8000);
        }
        assert_eq!(cache.lock().building, 0);
    }
}
