//! Compares a large file in pieces on all idle threads.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    DifferenceKind, Finding,
    pair::FilePair,
    run::{CompareRun, CompareThread, SideFailure},
};
use crate::{
    error::at_path,
    fs::walk::{Visit, VisitedEntry, WalkShared},
    pieces::Pieces,
    threads::locked,
};

/// A large file and the state of its comparison.
pub(crate) struct LargeComparison {
    pair: FilePair,
    paths: [PathBuf; 2],
    pieces: Pieces,
    /// The lowest offset at which a difference is known; `u64::MAX` if none is known.
    difference: AtomicU64,
    failed: Mutex<Option<SideFailure>>,
}

impl LargeComparison {
    /// Compares a file together with idle threads.
    pub fn share(
        pair: FilePair,
        at: &VisitedEntry<'_>,
        crew: &WalkShared<'_, impl Visit<Work = Weak<Self>>>,
        run: &CompareRun<'_>,
        hand: &mut CompareThread,
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

    /// Compares pieces until none are left. The last thread to finish reports the result.
    pub fn compare(&self, run: &CompareRun<'_>, hand: &mut CompareThread) {
        self.pieces.begin();
        while let Some(piece) = self.pieces.take() {
            // A piece after a known difference cannot contain the first one.
            let is_behind = piece.start >= self.difference.load(Ordering::Relaxed);
            if is_behind || run.go_on().is_err() || locked(&self.failed).is_some() {
                break;
            }
            match run.first_difference(hand, self.pair.ends(), piece) {
                Ok(Some(at)) => {
                    self.difference.fetch_min(at, Ordering::Relaxed);
                }
                Ok(None) => {}
                Err(failed) => *locked(&self.failed) = Some(failed),
            }
        }
        if self.pieces.done() {
            self.conclude(run, hand);
        }
    }

    fn conclude(&self, run: &CompareRun<'_>, hand: &mut CompareThread) {
        let difference = self.difference.load(Ordering::Relaxed);
        if let Some((side, call, errno)) = locked(&self.failed).take() {
            run.failed(at_path(&self.paths[side], call)(errno));
        } else if difference < u64::MAX {
            let path = &self.paths[1];
            run.find(hand, &Finding::Differs { path, how: DifferenceKind::Byte(difference) });
            run.pass(hand, self.pair.len.saturating_sub(difference));
        } else {
            run.same(hand, self.pair.len);
        }
    }
}
