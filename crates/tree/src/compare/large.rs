//! A file that is compared in pieces, by all threads that have nothing else to do.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    Finding, How,
    pair::Pair,
    run::{Failed, Hand, Run},
};
use crate::{
    pieces::Pieces,
    walk::{At, Crew, Visit, failed_call},
};

/// The file, and how far it is.
pub(crate) struct Large {
    pair: Pair,
    paths: [PathBuf; 2],
    pieces: Pieces,
    /// The first byte known to differ; `u64::MAX` for none.
    difference: AtomicU64,
    failed: Mutex<Option<Failed>>,
}

impl Large {
    /// Compares a file together with the threads that have nothing else to do.
    pub fn share(
        pair: Pair,
        at: &At<'_>,
        crew: &Crew<'_, impl Visit<Work = Weak<Self>>>,
        (run, hand): (&Run<'_>, &mut Hand),
    ) {
        let large = Arc::new(Self {
            pieces: Pieces::new(pair.len),
            pair,
            paths: [0, 1].map(|side| at.path(side)),
            difference: AtomicU64::new(u64::MAX),
            failed: Mutex::default(),
        });
        for _ in 1..crew.threads {
            crew.share(Arc::downgrade(&large));
        }
        large.compare(run, hand);
    }

    /// Compares pieces until none is left. The last thread to find none tells what was found.
    pub fn compare(&self, run: &Run<'_>, hand: &mut Hand) {
        self.pieces.begin();
        while let Some(piece) = self.pieces.take() {
            // Behind a known difference nothing is the first one.
            let is_behind = piece.start >= self.difference.load(Ordering::Relaxed);
            if is_behind || run.go_on().is_err() || self.failed().is_some() {
                break;
            }
            match run.first_difference(hand, self.pair.ends(), piece) {
                Ok(Some(at)) => {
                    self.difference.fetch_min(at, Ordering::Relaxed);
                }
                Ok(None) => {}
                Err(failed) => *self.failed() = Some(failed),
            }
        }
        if self.pieces.done() {
            self.conclude(run, hand);
        }
    }

    fn conclude(&self, run: &Run<'_>, hand: &mut Hand) {
        let difference = self.difference.load(Ordering::Relaxed);
        if let Some((side, call, errno)) = self.failed().take() {
            run.failed(failed_call(self.paths[side].clone(), call, errno));
        } else if difference < u64::MAX {
            let path = &self.paths[1];
            run.find(hand, &Finding::Differs { path, how: How::Byte(difference) });
            run.pass(hand, self.pair.len.saturating_sub(difference));
        } else {
            run.same(hand, self.pair.len);
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
