//! An end of an open channel: its own memory, the peer's memory, the link, and waiting for the peer.

use super::line::LinkLine;
use super::liveness::{self, Gone};
use super::memory::{SideMemory, Sides};
use super::publisher::{Publisher, wake};
use super::stop::WaitStop;
use super::wait::habit::Habit;
use super::wait::spin::{SpinTurn, Spinner, is_alone_with};
use super::wait::steps::{self, Cursor, ON_FUTEX, ON_LINK, Sleeper};
use super::wait::{Wait, WaitLimits};
use crate::error::{Error, Result};
use rustix::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;
use thalweg_core::cadence::LIVENESS;
use thalweg_sys::{Errno, futex};

/// Time limit for a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitPatience {
    /// Do not wait.
    None,
    /// Wait until this instant; `None` waits without limit.
    Until(Option<Instant>),
}

#[derive(Debug)]
pub(crate) struct ChannelEnd {
    pub(crate) own: SideMemory,
    pub(crate) peer: SideMemory,
    pub(crate) line: LinkLine,
    /// The configured wait method. `next_wait` is the method of the next wait, as `habit` adapted it.
    wait: Wait,
    next_wait: Wait,
    habit: Habit,
    /// Number of waits that did not end at the first check.
    waits: u64,
    sleeper: Sleeper,
    /// `true` if `futex_waitv` works here.
    futex: bool,
    /// `true` if this process and the peer share a single processor.
    alone: bool,
    /// `true` if the caller polls the link.
    armed: bool,
    /// Sockets to shut down when the kernel marks the peer's death. The link comes first. Empty if nothing is watched.
    watched: Vec<Weak<OwnedFd>>,
    gone: Option<Gone>,
}

impl ChannelEnd {
    pub(crate) fn new(Sides { own, peer }: Sides, line: LinkLine, wait: Wait) -> Self {
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

    /// Advances our cursor and wakes the peer if it sleeps. Must not be called in a forked child.
    #[inline]
    pub(crate) fn publish(&mut self, to: u64) {
        let (own, others) = (self.own.words(), self.peer.words());
        let waiting = steps::publish(&own.cursor.0, to, &others.waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Advances our slot count. If `quietly` is `true`, does not wake the peer, because the peer does not wait for this
    /// slot.
    #[inline]
    pub(crate) fn publish_slots(&mut self, to: u64, quietly: bool) {
        self.own.words().slots.0.publish_quietly(to);
        if !quietly {
            self.announce();
        }
    }

    /// Wakes the peer if it sleeps. Must follow a store to a word that the peer may wait for.
    #[inline]
    pub(crate) fn announce(&mut self) {
        let waiting = steps::announce::<AtomicU64>(&self.peer.words().waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Notifies the peer that nothing more will be sent.
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

    /// Transfers the right to advance our cursor. Afterwards this end does not publish, and may call
    /// [`ChannelEnd::close`] only once the publisher is dropped.
    pub(crate) fn publisher(&mut self) -> Publisher {
        let sleeper = std::mem::take(&mut self.sleeper);
        Publisher::new(self.own.share(), self.peer.share(), self.line.link.socket(), sleeper)
    }

    /// Returns how the peer ended, if it is known to have ended; see [`liveness::gone`].
    #[inline]
    pub(crate) fn gone(&mut self, thorough: bool) -> Option<Gone> {
        if self.gone.is_none() {
            self.gone = liveness::gone(self.peer.words(), &self.line.link, thorough);
        }
        self.gone
    }

    /// Checks for data once, without waiting. Available data takes precedence over the end of the channel.
    pub(crate) fn look<T>(
        &mut self,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, WaitStop> {
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
            // The peer may have committed something between the first check and its end.
            Some(gone) => look(self)?.map(Some).ok_or(WaitStop::Gone(gone)),
        }
    }

    /// Returns `true` if a waiting end may stop reading the peer's words for a moment. Only ends that spin first and
    /// sleep later do so.
    pub(crate) fn steps_back(&self, patience: WaitPatience) -> bool {
        let waits = matches!(patience, WaitPatience::Until(_)) && !self.armed;
        waits && !self.alone && matches!(self.next_wait, Wait::Hybrid { spin } if !spin.is_zero())
    }

    /// Returns the result of `look`, waiting up to `patience`. Returns `None` only with [`WaitPatience::None`].
    #[inline]
    pub(crate) fn find<T>(
        &mut self,
        patience: WaitPatience,
        look: &mut impl FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, WaitStop> {
        match patience {
            WaitPatience::None => self.look(look),
            WaitPatience::Until(deadline) => {
                self.wait_for(WaitLimits::until(deadline), look).map(Some)
            }
        }
    }

    /// Waits until `look` returns a result, the peer has ended and left no data, or a limit is reached. Only the code
    /// of a short wait is inlined: such a wait ends before it needs the rest.
    #[inline]
    pub(crate) fn wait_for<T>(
        &mut self,
        limits: WaitLimits,
        look: &mut impl FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<T, WaitStop> {
        let found = if self.armed { self.look(look)? } else { look(self)? };
        if let Some(found) = found {
            return Ok(found);
        }
        self.waits += 1;
        let mut spinner = Spinner::new(self.next_wait, self.alone);
        loop {
            let found = match spinner.turn() {
                SpinTurn::Look => look(self)?,
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
        turn: SpinTurn,
        limits: WaitLimits,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, WaitStop> {
        if turn == SpinTurn::Doubt {
            self.gone(true);
        }
        if let Some(found) = self.look(look)? {
            return Ok(Some(found));
        }
        limits.check()?;
        if turn != SpinTurn::Sleep {
            return Ok(None);
        }
        match self.sleep(limits, look)? {
            None => self.look(look),
            found => Ok(found),
        }
    }

    /// Announces that the caller polls the link from now on. Returns `false` if data is already
    /// available or the peer is gone; the caller must then not poll.
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

    /// Shuts the link down as soon as the kernel marks the peer's death, so that pollers of the link see it. If this
    /// process has no futexes or the kernel sets no mark, the link hangs up only once the peer's memory has been freed.
    pub(crate) fn watch(&mut self) {
        if self.watched.is_empty() {
            self.hang_up_with(&[]);
        }
    }

    /// Like [`ChannelEnd::watch`], and also shuts down `socket`, for a caller that blocks in a system call on it.
    /// Replaces the socket of an earlier call.
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

    /// Sleeps once, unless `look` returns a result first. The caller must check again, whatever ended the sleep.
    /// Returns the result of `look`, because `look` may have consumed it (a lock, for example).
    fn sleep<T>(
        &mut self,
        limits: WaitLimits,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, WaitStop> {
        let alive = self.peer.words().life();
        // If the kernel will not mark the peer's memory at its death, sleep on the link, which then hangs up.
        let how = if self.futex && alive != 0 { ON_FUTEX } else { ON_LINK };
        let wake = self.announce_sleep(how);
        // Check again after the announcement. If something has changed since the last check, this side does not sleep.
        let found = look(self)?;
        let slept = if found.is_some() || self.gone(how == ON_LINK).is_some() {
            Ok(())
        } else if how == ON_FUTEX {
            let theirs = self.peer.words();
            let words = [(&theirs.wake.0, wake), (&theirs.alive.0.node.word, alive)];
            let begin = Instant::now();
            let answer = futex::wait_any(words, Some(limits.left_of(LIVENESS)));
            let end = Instant::now();
            self.next_wait = self.habit.after_sleep(self.wait, begin, end, self.waits);
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

    /// Returns `true` if the kernel will mark the peer's memory when the peer ends.
    fn peer_is_marked(&self) -> bool {
        self.peer.words().life() != 0
    }

    /// Returns `true` if futexes alone suffice to sleep until the peer writes something or ends.
    pub(crate) fn sleeps_on_futexes(&self) -> bool {
        self.futex && self.peer_is_marked()
    }

    /// Returns `true` if each side has its own processor.
    pub(crate) fn has_free_core(&self) -> bool {
        !self.alone
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.close();
    }
}
