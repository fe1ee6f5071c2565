//! A supply that a helper thread owns while the helper produces the next piece of a body.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use thalweg_sys::Errno;

use super::{
    body::{BodyPiece, Supply, SupplyTurn},
    helper_pool::HelperPool,
    tasks::{HelperLane, HelperResources, HelperTask, Waiter},
};

type MadePiece = (Box<dyn Supply>, Result<BodyPiece, String>);

/// The pending result. Dropping it cancels the work.
pub struct Errand {
    made: Arc<Mutex<Option<MadePiece>>>,
    is_done: Arc<AtomicBool>,
}

impl Errand {
    /// Asks a helper to produce the next piece. Returns `None` if no helper thread can be started.
    pub fn start(
        mut supply: Box<dyn Supply>,
        helpers: &HelperPool,
        waiter: Waiter,
    ) -> Option<Self> {
        let made: Arc<Mutex<Option<MadePiece>>> = Arc::default();
        let place = Arc::downgrade(&made);
        let lane = supply.lane();
        let work = Box::new(move |hand: &mut HelperResources<'_>| {
            let is_wanted =
                || Weak::strong_count(&place) > 0 && !hand.is_over.load(Ordering::Relaxed);
            let check_cancelled = || if is_wanted() { Ok(()) } else { Err(Errno::CANCELED) };
            if check_cancelled().is_err() {
                return;
            }
            let may_sort = matches!(lane, HelperLane::Sort(_));
            let piece = supply.next(&SupplyTurn { may_sort, check_cancelled: &check_cancelled });
            if let Some(place) = place.upgrade() {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((supply, piece));
            }
        });
        let is_done = helpers.give(HelperTask { lane, work, waiter })?;
        Some(Self { made, is_done })
    }

    /// Returns the supply and its result once the work is done, and `None` before.
    pub fn take(&self) -> Option<Result<MadePiece, String>> {
        if !self.is_done.load(Ordering::Acquire) {
            return None;
        }
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(made.ok_or_else(|| "the response could not be generated".to_owned()))
    }
}
