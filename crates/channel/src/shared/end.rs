//! One end of an open channel: its own memory, the peer's memory, the link, and the code that waits for the peer.

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
    /// The wait method of the options. `next_wait` is the method of the next wait, which `habit` adapts.
    wait: Wait,
    next_wait: Wait,
    habit: Habit,
    /// Number of waits that found nothing at the first check.
    waits: u64,
    sleeper: Sleeper,
    /// `true` if `futex_waitv` works in this process.
    futex: bool,
    /// `true` if this process and the peer share a single processor.
    alone: bool,
    /// `true` if the caller polls the link, after [`ChannelEnd::arm`].
    armed: bool,
    /// Sockets that are shut down when the kernel marks the peer's death, the link first. Empty if none is watched.
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

    /// Sets our cursor to `to`, and wakes the peer if it sleeps. Must not be called in a forked child.
    #[inline]
    pub(crate) fn publish(&mut self, to: u64) {
        let (own, others) = (self.own.words(), self.peer.words());
        let waiting = steps::publish(&own.cursor.0, to, &others.waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Sets our slot count to `to`. If `quietly` is `true`, does not wake the peer. The caller must know that the peer
    /// does not wait for this slot.
    #[inline]
    pub(crate) fn publish_slots(&mut self, to: u64, quietly: bool) {
        self.own.words().slots.0.publish_quietly(to);
        if !quietly {
            self.announce();
        }
    }

    /// Wakes the peer if it sleeps. Call this after each store to a word that the peer may wait for.
    #[inline]
    pub(crate) fn announce(&mut self) {
        let waiting = steps::announce::<AtomicU64>(&self.peer.words().waiting.0);
        if waiting != steps::AWAKE {
            self.wake_peer(waiting);
        }
    }

    /// Notifies the peer that this end is closed. Has no effect in a forked child.
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

    /// Transfers the right to advance our cursor to the result. This end must then not publish, and may call
    /// [`ChannelEnd::close`] only after the publisher is dropped.
    pub(crate) fn publisher(&mut self) -> Publisher {
        let sleeper = std::mem::take(&mut self.sleeper);
        Publisher::new(self.own.share(), self.peer.share(), self.line.link.socket(), sleeper)
    }

    /// Returns whether the peer died or closed its end; `None` if neither is known. `thorough`: see [`liveness::gone`].
    #[inline]
    pub(crate) fn gone(&mut self, thorough: bool) -> Option<Gone> {
        if self.gone.is_none() {
            self.gone = liveness::gone(self.peer.words(), &self.line.link, thorough);
        }
        self.gone
    }

    /// Checks for data once, without waiting. Returns an error only if the peer is gone and no data is left.
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
            // The peer may have committed data after the first check and before it ended.
            Some(gone) => look(self)?.map(Some).ok_or(WaitStop::Gone(gone)),
        }
    }

    /// Returns `true` if this end may stop reading the peer's words for a moment while it waits. Only an end that polls
    /// before it sleeps may do so.
    pub(crate) fn steps_back(&self, patience: WaitPatience) -> bool {
        let waits = matches!(patience, WaitPatience::Until(_)) && !self.armed;
        waits && !self.alone && matches!(self.next_wait, Wait::Hybrid { spin } if !spin.is_zero())
    }

    /// Waits for a result of `look`, as `patience` allows. Returns `None` only with [`WaitPatience::None`].
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

    /// Waits until `look` returns a result, the peer is gone and has left no data, or a limit is reached. Only the
    /// first checks are inlined, because a short wait needs no more.
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

    /// Records that the caller polls the link from now on. Returns `false` if data is already available or the peer is
    /// gone. Then the caller must not poll, because no wake-up will come.
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

    /// Arranges that the link is shut down as soon as the kernel marks the peer's death, so that callers that poll the
    /// link notice it. If this process cannot use futexes or the kernel sets no mark, the link closes only after the
    /// kernel has freed the peer's memory.
    pub(crate) fn watch(&mut self) {
        if self.watched.is_empty() {
            self.hang_up_with(&[]);
        }
    }

    /// Like [`ChannelEnd::watch`], but also shuts down `socket`, for a caller that blocks in a system call on it.
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

    /// Sleeps once, unless `look` returns a result first. Returns that result, because `look` may have consumed it (it
    /// may take a lock, for example). If there is none, the caller must check again, whatever ended the sleep.
    fn sleep<T>(
        &mut self,
        limits: WaitLimits,
        look: &mut dyn FnMut(&Self) -> Result<Option<T>>,
    ) -> std::result::Result<Option<T>, WaitStop> {
        let alive = self.peer.words().life();
        // If the kernel will not mark the peer's death in memory, sleep on the link instead, which closes when the peer
        // dies.
        let how = if self.futex && alive != 0 { ON_FUTEX } else { ON_LINK };
        let wake = self.announce_sleep(how);
        // Check once more after the announcement: a peer that published before it saw the announcement will not wake
        // this side.
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

    /// Returns `true` if the kernel will mark the peer's death in the peer's memory.
    fn peer_is_marked(&self) -> bool {
        self.peer.words().life() != 0
    }

    /// Returns `true` if futexes alone are enough to sleep until the peer writes something or dies.
    pub(crate) fn sleeps_on_futexes(&self) -> bool {
        self.futex && self.peer_is_marked()
    }

    /// Returns `true` if the two sides can run at the same time, on different processors.
    pub(crate) fn has_free_core(&self) -> bool {
        !self.alone
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.close();
    }
}
