//! What both ends of a ring share: the two memories, the link, and waiting for the other.

use super::memory::Memory;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::wait::spin::{Spinner, Turn, is_alone_with};
use crate::wait::steps::{self, ON_FUTEX, ON_LINK, Sleeper};
use crate::wait::{DOUBT, Wait};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use thalweg_sys::fork::Mark;
use thalweg_sys::{Errno, futex, peer};

/// How long to wait, after the kernel has said that a peer died, until the last of its threads has
/// stopped: another could still commit in that moment. Bounded, because unmapping much memory can
/// keep a dead process for long. It is no part of finding out that it died.
const LAST_BREATH: Duration = Duration::from_millis(5);

/// How often one who spins believes the peer's word before the kernel is asked as well; see [`DOUBT`].
const LOOKS_BEFORE_DOUBT: u32 = 1 << 16;

/// How the other end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Died,
    Closed,
}

/// Why waiting ended without what was waited for.
#[derive(Debug)]
pub(crate) enum Stop {
    Gone(Gone),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How long to wait for something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then; `None` is for ever.
    Until(Option<Instant>),
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) own: Memory,
    pub(crate) peer: Memory,
    pub(crate) link: Link,
    mark: Mark,
    wait: Wait,
    sleeper: Sleeper,
    /// `futex_waitv` works here.
    futex: bool,
    /// We and the peer have one processor between us.
    alone: bool,
    /// The caller polls the link for us.
    armed: bool,
    gone: Option<Gone>,
}

impl End {
    pub(crate) fn new(own: Memory, peer: Memory, link: Link, wait: Wait) -> Self {
        let alone = is_alone_with(link.peer());
        Self {
            own,
            peer,
            link,
            mark: Mark::here(),
            wait,
            sleeper: Sleeper::default(),
            futex: futex::can_wait_any(),
            alone,
            armed: false,
            gone: None,
        }
    }

    /// Whether this is still the process that opened it. A child shares the memory, and what it
    /// wrote there would be taken for its parent's.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        if self.mark.is_here() {
            return Ok(());
        }
        Err(Error::Forked { owner: self.mark.process() })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.own.geometry.capacity
    }

    /// Moves our cursor and wakes the other end if it sleeps. Nothing in a forked child.
    #[inline]
    pub(crate) fn publish(&mut self, to: u64) {
        let (own, others) = (self.own.page(), self.peer.page());
        let waiting = steps::publish(&own.cursor.0, to, &others.waiting.0);
        if waiting != steps::AWAKE {
            self.rouse(waiting);
        }
    }

    fn rouse(&mut self, waiting: u32) {
        let own = self.own.page();
        match self.sleeper.due(waiting, &own.wake.0) {
            ON_FUTEX => {
                // It fails for bad addresses only, and this one is mapped.
                let _ = futex::wake_one(&own.wake.0);
            }
            ON_LINK => {
                // A full queue wakes as well as one more message, a closed one has no sleeper.
                let _ = peer::send(&self.link, b"!", &[]);
            }
            _ => {}
        }
    }

    /// Whether the other end is known to be gone. `thorough` asks the kernel about a peer whose
    /// memory cannot tell, which costs system calls.
    #[inline]
    pub(crate) fn gone(&mut self, thorough: bool) -> Option<Gone> {
        if self.gone.is_none() {
            let alive = &self.peer.page().alive.0;
            let word = alive.node.word.load(Acquire);
            if alive.closed.load(Acquire) != 0 {
                self.gone = Some(Gone::Closed);
            } else if word & futex::OWNER_DIED != 0 {
                self.link.await_end(LAST_BREATH);
                self.gone = Some(Gone::Died);
            } else if thorough && !self.link.peer_is_alive() {
                // Its goodbye comes before its end of the link closes.
                let closed = self.peer.page().alive.0.closed.load(Acquire) != 0;
                self.gone = Some(if closed { Gone::Closed } else { Gone::Died });
            }
        }
        self.gone
    }

    /// One look without waiting; what is there comes before the news that nothing more will come.
    pub(crate) fn look<T>(
        &mut self,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, Stop> {
        let armed = std::mem::take(&mut self.armed);
        if armed {
            steps::get_up(&self.own.page().waiting.0);
            self.drain_link();
        }
        if let Some(found) = look(self)? {
            return Ok(Some(found));
        }
        let thorough = armed || !self.peer_is_marked();
        match self.gone(thorough) {
            None => Ok(None),
            // It may have committed between the look and its end.
            Some(gone) => look(self)?.map(Some).ok_or(Stop::Gone(gone)),
        }
    }

    /// What `look` finds, with so much patience; `None` only without any.
    #[inline]
    pub(crate) fn find<T>(
        &mut self,
        patience: Patience,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, Stop> {
        match patience {
            Patience::None => self.look(look),
            Patience::Until(deadline) => self.wait_for(deadline, look).map(Some),
        }
    }

    /// Waits until `look` finds something, the other end is gone and nothing is left, or the
    /// deadline passes.
    pub(crate) fn wait_for<T>(
        &mut self,
        deadline: Option<Instant>,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<T, Stop> {
        if let Some(found) = self.look(look)? {
            return Ok(found);
        }
        let mut spinner = Spinner::new(self.wait, self.alone);
        let mut doubt = 0_u32;
        loop {
            let found = match spinner.turn() {
                Turn::Look => look(self)?,
                Turn::LookAround => {
                    doubt = doubt.wrapping_add(1);
                    if doubt.is_multiple_of(LOOKS_BEFORE_DOUBT) {
                        self.gone(true);
                    }
                    let found = self.look(look)?;
                    if found.is_none() && deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(Error::Timeout.into());
                    }
                    found
                }
                Turn::Sleep => {
                    self.sleep(deadline, look)?;
                    self.look(look)?
                }
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Says that we will poll the link from now on. False: there is something already, or the
    /// other end is gone, so do not.
    pub(crate) fn arm<T>(
        &mut self,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<bool> {
        self.drain_link();
        steps::lie_down::<AtomicU64>(&self.own.page().waiting.0, ON_LINK, &self.peer.page().wake.0);
        self.armed = true;
        let quiet = look(self)?.is_none() && self.gone(true).is_none();
        Ok(quiet)
    }

    /// Sleeps once, for whatever reason it ends.
    fn sleep<T>(
        &mut self,
        deadline: Option<Instant>,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<(), Stop> {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::Timeout.into());
        }
        let alive = self.peer.page().alive.0.node.word.load(Acquire);
        // A peer whose memory will not tell of its death is watched through the link.
        let how = if self.futex && alive != 0 { ON_FUTEX } else { ON_LINK };
        let wake =
            steps::lie_down::<AtomicU64>(&self.own.page().waiting.0, how, &self.peer.page().wake.0);
        // Anything new since the last look, and the sleep does not begin.
        let slept = if look(self)?.is_some() || self.gone(how == ON_LINK).is_some() {
            Ok(())
        } else if how == ON_FUTEX {
            let words =
                [(&self.peer.page().wake.0, wake), (&self.peer.page().alive.0.node.word, alive)];
            match futex::wait_any(words, Some(left.map_or(DOUBT, |left| left.min(DOUBT)))) {
                Err(Errno::TIMEDOUT) => {
                    self.gone(true);
                    Ok(())
                }
                answer => answer.map_err(Error::system("futex_waitv")),
            }
        } else {
            self.link.await_news(left)
        };
        steps::get_up(&self.own.page().waiting.0);
        if how == ON_LINK {
            self.drain_link();
        }
        Ok(slept?)
    }

    /// Takes the wake-up messages from the link, as many as an honest peer can have sent and then
    /// some: a dishonest one only keeps itself busy.
    fn drain_link(&mut self) {
        let mut message = [0; 16];
        for _ in 0..64 {
            match peer::receive(&self.link, &mut message) {
                Ok(got) if got.len > 0 => {}
                _ => return,
            }
        }
    }

    /// Whether the kernel will mark the peer's memory when the peer ends.
    fn peer_is_marked(&self) -> bool {
        self.peer.page().alive.0.node.word.load(Acquire) != 0
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            return;
        }
        let (own, others) = (self.own.page(), self.peer.page());
        let waiting = steps::say_goodbye::<AtomicU64>(&own.alive.0.closed, &others.waiting.0);
        self.rouse(waiting);
    }
}
