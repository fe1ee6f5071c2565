//! Hashes a large file in pieces on all idle threads. Only BLAKE3 supports this, because it is a tree hash.

use std::{
    ops::Range,
    os::fd::AsFd,
    sync::{Arc, Mutex, Weak},
};
use thalweg_sys::io;

use super::{
    expected::HashFailure,
    hash::{FileToHash, HashThread, Hashing},
};
use crate::{
    Hash,
    error::at_path,
    fs::walk::{Visit, WalkShared},
    hashing::PartialHash,
    identity::size,
    pieces::{PIECE, Pieces},
    threads::locked,
};

/// A task of the walk.
pub(crate) enum HashWork {
    /// Some lines of the manifest, or names of the list.
    Lines(Range<usize>),
    /// A large file with pieces left. The reference is weak, so that a queued task does not keep the file open.
    Large(Weak<LargeHash>),
}

/// A large file and the hashes of its parts.
pub(crate) struct LargeHash {
    subject: FileToHash,
    pieces: Pieces,
    parts: Mutex<HashParts>,
}

struct HashParts {
    done: Vec<Option<PartialHash>>,
    failed: Option<HashFailure>,
}

impl LargeHash {
    /// Hashes a file together with idle threads.
    pub fn share(
        subject: FileToHash,
        crew: &WalkShared<'_, impl Visit<Work = HashWork>>,
        hashing: &Hashing<'_>,
        hand: &mut HashThread,
    ) {
        let pieces = Pieces::new(size(&subject.stat));
        let done = (0..pieces.count()).map(|_| None).collect();
        let parts = Mutex::new(HashParts { done, failed: None });
        let large = Arc::new(Self { subject, pieces, parts });
        for _ in 1..crew.threads {
            crew.share(HashWork::Large(Arc::downgrade(&large)));
        }
        large.hash(hashing, hand);
    }

    /// Hashes pieces until none are left. The last thread to finish combines the parts.
    pub fn hash(&self, hashing: &Hashing<'_>, hand: &mut HashThread) {
        self.pieces.begin();
        while let Some(piece) = self.pieces.take() {
            if hashing.run.go_on().is_err() {
                break;
            }
            let index = (piece.start / PIECE) as usize;
            let part = self.part(hashing, hand, &piece);
            let mut parts = locked(&self.parts);
            match part {
                Ok(part) => parts.done[index] = part,
                Err(failed) => {
                    parts.failed = Some(failed);
                    break;
                }
            }
        }
        if self.pieces.done() {
            self.conclude(hashing, hand);
        }
    }

    /// Returns the hash of a piece; `None` if the file ends within it.
    fn part(
        &self,
        hashing: &Hashing<'_>,
        hand: &mut HashThread,
        piece: &Range<u64>,
    ) -> Result<Option<PartialHash>, HashFailure> {
        hand.run.make_room();
        let mut at = piece.start;
        let part = PartialHash::of(piece.start, |hasher| {
            while at < piece.end {
                let buffer = &mut hand.run.buffers[0];
                let ask = buffer.len().min((piece.end - at) as usize);
                let got = io::pread_full(self.subject.fd.as_fd(), &mut buffer[..ask], at)
                    .map_err(|errno| ("pread", errno))?;
                hasher.update(&buffer[..got]);
                at += got as u64;
                if got < ask {
                    break;
                }
            }
            Ok(())
        })?;
        hashing.run.advance(&mut hand.run, 0, at - piece.start);
        Ok((at == piece.end).then_some(part))
    }

    fn conclude(&self, hashing: &Hashing<'_>, hand: &mut HashThread) {
        let subject = &self.subject;
        let mut parts = locked(&self.parts);
        if let Some((call, errno)) = parts.failed {
            return hashing.run.failed(at_path(&subject.path, call)(errno));
        }
        if hashing.run.go_on().is_err() {
            return;
        }
        let len = size(&subject.stat);
        let done: Option<Vec<PartialHash>> = std::mem::take(&mut parts.done).into_iter().collect();
        match done {
            Some(done) => {
                let digest = PartialHash::join(&done, PIECE, len);
                hashing.hashed(hand, subject, &[digest], len);
            }
            // The file was truncated during the reading. It is hashed again as a whole.
            None => hashing.hash_here(hand, subject, &[Hash::Blake3]),
        }
    }
}
