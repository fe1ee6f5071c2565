//! Hashes of files, computed on request. Helper threads read the files. Small and large files are in separate lanes
//! (classes of tasks with a limit on concurrent helpers). The hash of a file version is cached. A computation is
//! cancelled if no client waits for the hash any more, unless the client may ask again.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use thalweg_core::Cancelled;
use thalweg_sys::Errno;
use thalweg_tree::{
    Hash,
    hashing::{Digest, hash_file},
};

use super::{
    helper_pool::HelperPool,
    opened::ServedFile,
    tasks::{HashSize, HelperLane, HelperResources, HelperTask, Waiter},
    version::FileVersion,
};

/// Maximum number of cached hashes.
const KEPT: usize = 4096;
/// A computation that has run for this long continues after its client has left, because the client may ask again.
const WORTH_KEEPING: Duration = Duration::from_secs(30);
/// Number of bytes read per call.
const PIECE: usize = 256 << 10;

/// A file version and a hash algorithm.
type DigestKey = (FileVersion, u8);

fn key(file: &ServedFile, hash: Hash) -> DigestKey {
    (file.version, hash as u8)
}

/// A file, and the hash that is wanted of it.
#[derive(Debug)]
pub struct HashedFile {
    pub file: Arc<ServedFile>,
    pub hash: Hash,
}

/// State of the hash of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownDigest {
    Digest(Digest),
    /// The file could not be read, or it changed during the read.
    Nothing,
    /// The hash has not been computed.
    NotYet,
}

/// The hash cache of a server.
#[derive(Clone, Debug, Default)]
pub struct Digests(Arc<Mutex<DigestState>>);

#[derive(Debug, Default)]
struct DigestState {
    known: HashMap<DigestKey, KnownDigest>,
    /// Hashes that clients are waiting for.
    wishes: HashMap<DigestKey, Weak<Wish>>,
}

/// A hash that clients are waiting for.
#[derive(Debug, Default)]
struct Wish {
    clients: AtomicUsize,
    /// The time at which the read of the file began.
    begun: OnceLock<Instant>,
    /// `true` if a client was answered without the hash and may ask again. A computation that has begun then continues.
    is_kept: AtomicBool,
}

impl Wish {
    fn is_wanted(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 0
            || self.is_kept.load(Ordering::Relaxed)
            || self.begun.get().is_some_and(|begun| begun.elapsed() >= WORTH_KEEPING)
    }
}

/// A client's wait for a hash. Dropping it ends the wait.
#[derive(Debug)]
pub struct DigestWait {
    wish: Arc<Wish>,
    is_done: Arc<AtomicBool>,
}

impl DigestWait {
    /// Returns `true` if the hash is known or cannot be computed.
    pub fn is_over(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Ends the wait early. A computation that has begun continues, so that a later request finds the hash.
    pub fn leave(self) {
        if self.wish.begun.get().is_some() {
            self.wish.is_kept.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for DigestWait {
    fn drop(&mut self) {
        self.wish.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Digests {
    /// Returns the cached hash of this file version.
    pub fn known(&self, file: &ServedFile, hash: Hash) -> KnownDigest {
        self.state().known.get(&key(file, hash)).copied().unwrap_or(KnownDigest::NotYet)
    }

    /// Requests the hash of a file. The waiter's mailbox receives its token when the computation is done.
    pub fn ask_for(
        &self,
        HashedFile { file, hash }: HashedFile,
        helpers: &HelperPool,
        waiter: Waiter,
    ) -> DigestWait {
        let (digests, key) = (self.clone(), key(&file, hash));
        let wish = self.wish(key);
        let lane = HelperLane::Hash(HashSize::of(file.version.size));
        let of_work = Arc::clone(&wish);
        let work = Box::new(move |hand: &mut HelperResources<'_>| {
            // Another request may already have computed the hash, and this client may have left.
            if digests.known(&file, hash) != KnownDigest::NotYet || !of_work.is_wanted() {
                return;
            }
            of_work.begun.get_or_init(Instant::now);
            let known = match digest(&file, hash, hand, &of_work) {
                Ok(digest) => digest.map_or(KnownDigest::Nothing, KnownDigest::Digest),
                Err(Cancelled) if hand.is_over.load(Ordering::Relaxed) => KnownDigest::Nothing,
                // No client waited for it. Another one may wait by now, and has a task of its own.
                Err(Cancelled) => return,
            };
            digests.keep(key, known);
        });
        let is_done = helpers.give(HelperTask { lane, work, waiter }).unwrap_or_else(|| {
            // No thread can be started, so the answer is sent without the hash.
            self.keep(key, KnownDigest::Nothing);
            Arc::new(true.into())
        });
        DigestWait { wish, is_done }
    }

    /// Counts one more waiting client.
    fn wish(&self, key: DigestKey) -> Arc<Wish> {
        let mut state = self.state();
        let known = state.wishes.get(&key).and_then(Weak::upgrade);
        let wish = known.unwrap_or_else(|| {
            state.wishes.retain(|_, wish| wish.strong_count() > 0);
            let wish = Arc::default();
            state.wishes.insert(key, Arc::downgrade(&wish));
            wish
        });
        wish.clients.fetch_add(1, Ordering::Relaxed);
        wish
    }

    fn keep(&self, key: DigestKey, known: KnownDigest) {
        let all = &mut self.state().known;
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(key, known);
    }

    fn state(&self) -> MutexGuard<'_, DigestState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the hash; `None` if the file is unreadable or changed during the read.
fn digest(
    file: &ServedFile,
    hash: Hash,
    hand: &mut HelperResources<'_>,
    wish: &Wish,
) -> Result<Option<Digest>, Cancelled> {
    let HelperResources { is_over, buffer } = hand;
    buffer.resize(buffer.capacity().max(PIECE));
    let check_cancelled = || {
        let is_wanted = wish.is_wanted() && !is_over.load(Ordering::Relaxed);
        if is_wanted { Ok(()) } else { Err(Cancelled) }
    };
    let unread = |_: Errno| Unhashed::Unreadable;
    let (fd, size) = (file.as_fd(), file.version.size);
    match hash_file(fd, hash, &mut buffer[..PIECE], size, &check_cancelled, unread) {
        Ok((len, digest)) => Ok((len == size && file.is_unchanged()).then_some(digest)),
        Err(Unhashed::Unreadable) => Ok(None),
        Err(Unhashed::Cancelled) => Err(Cancelled),
    }
}

/// The reason why a hash was not computed.
enum Unhashed {
    Unreadable,
    Cancelled,
}

impl From<Cancelled> for Unhashed {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}
