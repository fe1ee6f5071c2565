//! Hashes of files, for clients that ask for them: one file at a time is read, by a thread of its own, and what came
//! of it is kept for as long as the file is the same version.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use thalweg_core::Cancelled;
use thalweg_sys::{Errno, fault};
use thalweg_tree::{
    Hash,
    hashing::{Digest, hash_file},
};

use super::{mailbox::Mailbox, opened::Opened, version::Version};

/// The most hashes that are kept.
const KEPT: usize = 4096;
/// What is read at a time.
const PIECE: usize = 256 << 10;

/// One file by one hash.
type Key = (Version, u8);

fn key(file: &Opened, hash: Hash) -> Key {
    (file.version, hash as u8)
}

/// What is known of the hash of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Digest(Digest),
    /// It could not be read, or changed while it was.
    Nothing,
    /// Nobody has hashed it.
    NotYet,
}

/// A hash that somebody waits for.
pub struct Job {
    pub file: Arc<Opened>,
    pub hash: Hash,
    pub token: u64,
    pub mailbox: Arc<Mailbox>,
}

/// All hashes of a server.
#[derive(Default)]
pub struct Digests(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Job, Arc<AtomicBool>)>,
    known: HashMap<Key, Known>,
    has_thread: bool,
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digests").finish_non_exhaustive()
    }
}

impl Digests {
    /// What is known of this version of a file.
    pub fn known(&self, file: &Opened, hash: Hash) -> Known {
        self.0.lock().known.get(&key(file, hash)).copied().unwrap_or(Known::NotYet)
    }

    /// Has a file hashed; the flag is set when that is done, before the mailbox is told.
    pub fn hash(&self, job: Job) -> Arc<AtomicBool> {
        let done = Arc::new(AtomicBool::new(false));
        let mut state = self.0.lock();
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let faults = fault::inherit();
            let run = move || faults.enter(|| shared.work());
            if thread::Builder::new().name("hash".to_owned()).spawn(run).is_err() {
                // Nobody hashes it.
                state.keep(key(&job.file, job.hash), Known::Nothing);
                done.store(true, Ordering::Release);
                return done;
            }
            state.has_thread = true;
        }
        state.queue.push_back((job, Arc::clone(&done)));
        self.0.work.notify_one();
        done
    }
}

impl Drop for Digests {
    fn drop(&mut self) {
        // Under the lock, so that the thread does not look just before and sleep just after.
        let state = self.0.lock();
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.work.notify_all();
        drop(state);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut buffer = vec![0; PIECE];
        let mut state = self.lock();
        while !self.is_over.load(Ordering::Relaxed) {
            let Some((job, done)) = state.queue.pop_front() else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let key = key(&job.file, job.hash);
            // Somebody else may have asked for the same before.
            if !state.known.contains_key(&key) {
                drop(state);
                let digest = self.digest(&job, &mut buffer);
                state = self.lock();
                state.keep(key, digest.map_or(Known::Nothing, Known::Digest));
            }
            done.store(true, Ordering::Release);
            job.mailbox.tell(job.token);
        }
    }

    /// The hash, if it is of one version of the file and that is its last.
    fn digest(&self, job: &Job, buffer: &mut [u8]) -> Option<Digest> {
        let go_on = || if self.is_over.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) };
        let unread = |_: Errno| Unhashed;
        let (file, size) = (job.file.as_fd(), job.file.version.size);
        let (len, digest) = hash_file(file, job.hash, (buffer, size), &go_on, unread).ok()?;
        (len == size && job.file.is_unchanged()).then_some(digest)
    }
}

/// Why there is no hash: who asked is told without one.
struct Unhashed;

impl From<Cancelled> for Unhashed {
    fn from(_: Cancelled) -> Self {
        Self
    }
}

impl State {
    fn keep(&mut self, key: Key, known: Known) {
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(key, known);
    }
}
