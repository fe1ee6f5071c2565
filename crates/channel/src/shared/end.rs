//! One end of an open channel: its own memory, the peer's, the link, and waiting for the peer.

use super::line::Line;
use super::liveness::{self, Gone, RECHECK};
use super::memory::{Memory, Sides};
use super::publisher::{Publisher, wake};
use super::stop::Stop;
use super::wait::habit::Habit;
use super::wait::spin::{Spinner, Turn, is_alone_with};
use super::wait::steps::{self, Cursor, ON_FUTEX, ON_LINK, Sleeper};
use super::wait::{Limits, Wait};
use crate::error::{Error, Result};
use rustix::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;
use thalweg_sys::{Errno, futex};

/// How long to wait for something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then; `None` is for ever.
    Until(Option<Instant>),
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) own: Memory,
    pub(crate) peer: Memory,
    pub(crate) line: Line,
    /// As the caller wants it, and as the next wait does it.
    wait: Wait,
    next_wait: Wait,
    habit: Habit,
    /// Waits that did not end at their first look.
    waits: u64,
    sleeper: Sleeper,
    /// `futex_waitv` works here.
    futex: bool,
    /// We and the peer have one processor between us.
    alone: bool,
    /// The caller polls the link for us.
    armed: bool,
    /// What is hung up when the peer is marked as dead: the link first, or nothing.
    watched: Vec<Weak<OwnedFd>>,
    gone: Option<Gone>,
}

impl End {
    pub(crate) fn new(Sides { own, peer }: Sides, line: Line, wait: Wait) -> Self {
        let alone = is_alone_with(line.link.peer());
        Self {
            own,
            peer,
            line,
            wait,
            next_wait: wait,
            habit: Habit::default(),
            waits: 0,
            sleeper: Sleeper::default(),
            futex: futex::can_wait_any(),
            alone,
            armed: false,
            watched: Vec::new(),
            gone: None,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.own.geometry.capacity
    }

    /// Moves our cursor and wakes the peer if it sleeps. Not for a forked child.
    #[inline]
    pub(crate) fn publish(&mut self, to: u64) {
        let (own, others) = (self.own.words(), self.peer.words());
        let waiting = steps::publish(&own.cursor.0, to, &others.waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Moves our count of slots. `quietly`: the peer does not wait for this one, and is not woken.
    #[inline]
    pub(crate) fn publish_slots(&mut self, to: u64, quietly: bool) {
        self.own.words().slots.0.publish_quietly(to);
        if !quietly {
            self.announce();
        }
    }

    /// Wakes the peer if it sleeps, after a store to a word that it may wait for.
    #[inline]
    pub(crate) fn announce(&mut self) {
        let waiting = steps::announce::<AtomicU64>(&self.peer.words().waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn close(&mut self) {
        if self.line.is_here() {
            let (own, others) = (self.own.words(), self.peer.words());
            let waiting = steps::close::<AtomicU64>(&own.alive.0.closed, &others.waiting.0);
            self.wake_peer(waiting);
        }
    }

    fn wake_peer(&mut self, waiting: u32) {
        wake(self.own.words(), &mut self.sleeper, waiting, &self.line.link);
    }

    /// Hands on the right to move our cursor: this end does not publish any more, and may
    /// [`End::close`] only when the publisher is gone.
    pub(crate) fn publisher(&mut self) -> Publisher {
        let sleeper = std::mem::take(&mut self.sleeper);
        Publisher::new(self.own.share(), self.peer.share(), self.line.link.socket(), sleeper)
    }

    /// Whether the peer is known to be gone; see [`liveness::gone`].
    #[inline]
    pub(crate) fn gone(&mut self, thorough: bool) -> Option<Gone> {
        if self.gone.is_none() {
            self.gone = liveness::gone(self.peer.words(), &self.line.link, thorough);
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
            steps::wake_up(&self.own.words().waiting.0);
            self.line.drain()?;
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

    /// Whether an end that is to wait may stay away from the peer's words for a moment, which is for
    /// those that look now and sleep later.
    pub(crate) fn steps_back(&self, patience: Patience) -> bool {
        let waits = matches!(patience, Patience::Until(_)) && !self.armed;
        waits && !self.alone && matches!(self.next_wait, Wait::Hybrid { spin } if !spin.is_zero())
    }

    /// What `look` finds, with so much patience; `None` only without any.
    #[inline]
    pub(crate) fn find<T>(
        &mut self,
        patience: Patience,
        look: &mut impl FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, Stop> {
        match patience {
            Patience::None => self.look(look),
            Patience::Until(deadline) => self.wait_for(Limits::until(deadline), look).map(Some),
        }
    }

    /// Waits until `look` finds something, the peer is gone and nothing is left, or a limit is
    /// reached. Only what a short wait needs is here: it ends sooner than the rest takes.
    #[inline]
    pub(crate) fn wait_for<T>(
        &mut self,
        limits: Limits,
        look: &mut impl FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<T, Stop> {
        let found = if self.armed { self.look(look)? } else { look(self)? };
        if let Some(found) = found {
            return Ok(found);
        }
        self.waits += 1;
        let mut spinner = Spinner::new(self.next_wait, self.alone);
        loop {
            let found = match spinner.turn() {
                Turn::Look => look(self)?,
                turn => self.look_around(turn, limits, look)?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    #[cold]
    fn look_around<T>(
        &mut self,
        turn: Turn,
        limits: Limits,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, Stop> {
        if turn == Turn::Doubt {
            self.gone(true);
        }
        if let Some(found) = self.look(look)? {
            return Ok(Some(found));
        }
        limits.check()?;
        if turn != Turn::Sleep {
            return Ok(None);
        }
        match self.sleep(limits, look)? {
            None => self.look(look),
            found => Ok(found),
        }
    }

    /// Says that the caller polls the link from now on. False: there is something already, or the
    /// peer is gone, so do not.
    pub(crate) fn arm<T>(
        &mut self,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<bool> {
        self.line.drain()?;
        self.watch();
        self.announce_sleep(ON_LINK);
        self.armed = true;
        let quiet = look(self)?.is_none() && self.gone(true).is_none();
        Ok(quiet)
    }

    /// From now on who polls the link is told of the peer's death as soon as the kernel has marked it.
    /// Where that cannot be had, the kernel tells when it has given back the peer's memory.
    pub(crate) fn watch(&mut self) {
        if self.watched.is_empty() {
            self.hang_up_with(&[]);
        }
    }

    /// The same, and who waits in a call on `socket`, if it is one, in place of another given before.
    pub(crate) fn watch_with(&mut self, socket: &Arc<OwnedFd>) {
        let is_it = |watched: &Weak<OwnedFd>| watched.as_ptr() == Arc::as_ptr(socket);
        if !self.watched.iter().any(is_it) {
            self.hang_up_with(&[Arc::downgrade(socket)]);
        }
    }

    fn hang_up_with(&mut self, sockets: &[Weak<OwnedFd>]) {
        if let Some(link) = self.line.link.to_hang_up().filter(|_| self.sleeps_on_futexes()) {
            self.watched = [&[link], sockets].concat();
            self.peer.watch(self.watched.clone());
        }
    }

    fn announce_sleep(&self, how: u32) -> u32 {
        let (own, others) = (self.own.words(), self.peer.words());
        steps::announce_sleep::<AtomicU64>(&own.waiting.0, how, &others.wake.0)
    }

    /// Sleeps once, unless `look` finds something first; the caller looks again, whatever ended the
    /// sleep. What was found is returned: a look may take what it finds, as that for a lock does.
    fn sleep<T>(
        &mut self,
        limits: Limits,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, Stop> {
        let alive = self.peer.words().life();
        // A peer whose memory will not tell of its death is watched through the link.
        let how = if self.futex && alive != 0 { ON_FUTEX } else { ON_LINK };
        let wake = self.announce_sleep(how);
        // Anything new since the last look, and the sleep does not begin.
        let found = look(self)?;
        let slept = if found.is_some() || self.gone(how == ON_LINK).is_some() {
            Ok(())
        } else if how == ON_FUTEX {
            let theirs = self.peer.words();
            let words = [(&theirs.wake.0, wake), (&theirs.alive.0.node.word, alive)];
            let begin = Instant::now();
            let answer = futex::wait_any(words, Some(limits.left_of(RECHECK)));
            let time = (begin, Instant::now());
            self.next_wait = self.habit.after_sleep(self.wait, time, self.waits);
            match answer {
                Err(Errno::TIMEDOUT) => {
                    self.gone(true);
                    Ok(())
                }
                answer => answer.map_err(Error::system("futex_waitv")),
            }
        } else {
            self.line.link.await_news(limits.left())
        };
        steps::wake_up(&self.own.words().waiting.0);
        if how == ON_LINK {
            self.line.drain()?;
        }
        slept?;
        Ok(found)
    }

    /// Whether the kernel will mark the peer's memory when the peer ends.
    fn peer_is_marked(&self) -> bool {
        self.peer.words().life() != 0
    }

    /// Whether it takes only futexes to sleep until the peer has news or is gone.
    pub(crate) fn sleeps_on_futexes(&self) -> bool {
        self.futex && self.peer_is_marked()
    }

    /// Whether there is a processor for each side.
    pub(crate) fn has_free_core(&self) -> bool {
        !self.alone
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}
