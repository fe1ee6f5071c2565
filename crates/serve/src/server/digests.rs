//! Hashes of files, for clients that ask for them: one file at a time is read, and what came of it is kept for as
//! long as the file is the same version.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use thalweg_core::Cancelled;
use thalweg_sys::Errno;
use thalweg_tree::{
    Hash,
    hashing::{Digest, hash_file},
};

use super::{
    crew::{Crew, Hand, Lane, Task},
    mailbox::Mailbox,
    opened::Opened,
    version::Version,
};

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

/// All hashes of a server.
#[derive(Clone, Debug, Default)]
pub struct Digests(Arc<Mutex<HashMap<Key, Known>>>);

impl Digests {
    /// What is known of this version of a file.
    pub fn known(&self, file: &Opened, hash: Hash) -> Known {
        self.all().get(&key(file, hash)).copied().unwrap_or(Known::NotYet)
    }

    /// Has a file hashed; the flag is set when that is done, before the mailbox is told.
    pub fn ask_for(
        &self,
        (file, hash): (Arc<Opened>, Hash),
        crew: &Crew,
        (token, mailbox): (u64, Arc<Mailbox>),
    ) -> Arc<AtomicBool> {
        let (digests, key) = (self.clone(), key(&file, hash));
        let work = Box::new(move |hand: &mut Hand<'_>| {
            // Somebody else may have asked for the same before.
            if digests.known(&file, hash) == Known::NotYet {
                let digest = digest(&file, hash, hand);
                digests.keep(key, digest.map_or(Known::Nothing, Known::Digest));
            }
        });
        crew.give(Task { lane: Lane::Hash, work, token, mailbox }).unwrap_or_else(|| {
            // Nobody hashes it.
            self.keep(key, Known::Nothing);
            Arc::new(true.into())
        })
    }

    fn keep(&self, key: Key, known: Known) {
        let mut all = self.all();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(key, known);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash, if it is of one version of the file and that is its last.
fn digest(file: &Opened, hash: Hash, hand: &mut Hand<'_>) -> Option<Digest> {
    let Hand { is_over, buffer } = hand;
    buffer.resize(buffer.capacity().max(PIECE));
    let go_on = || if is_over.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) };
    let unread = |_: Errno| Unhashed;
    let (fd, size) = (file.as_fd(), file.version.size);
    let (len, digest) = hash_file(fd, hash, (&mut buffer[..PIECE], size), &go_on, unread).ok()?;
    (len == size && file.is_unchanged()).then_some(digest)
}

/// Why there is no hash: who asked is told without one.
struct Unhashed;

impl From<Cancelled> for Unhashed {
    fn from(_: Cancelled) -> Self {
        Self
    }
}
