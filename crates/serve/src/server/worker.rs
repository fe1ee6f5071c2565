//! A worker thread with its listening sockets and connections: an epoll loop that never blocks anywhere else.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags},
};
use thalweg_core::profile::Load;
use thalweg_sys::{
    Errno,
    epoll::{Event, EventData, EventFlags, NO_EVENT, wait},
    io,
    usage::Usage,
};

use super::{
    answering::NextAction, connection::ServeConnection, ends::ConnectionEnds, options::Timeouts,
    tools::Tools, unsent::Unsent, waiting::WaitingMemory,
};
use crate::stream::ByteStream;

mod accepting;

/// Stages of the shutdown. A worker checks the stage whenever it is woken.
pub const RUNNING: u8 = 0;
/// Finish the answers in progress, then end.
pub const ENDING: u8 = 1;
/// End immediately.
pub const NOW: u8 = 2;

/// Resources of a worker.
pub struct WorkerParts {
    pub listeners: Vec<(OwnedFd, bool)>,
    /// Connections that exist already. If there are any, the worker ends with the last of them.
    pub streams: Vec<ByteStream>,
    pub tools: Tools,
    pub timeouts: Timeouts,
    pub most: usize,
    pub waiting: WaitingMemory,
    pub unsent: Option<Unsent>,
    pub stage: Arc<AtomicU8>,
    /// Eventfd that is written to when the stage changes.
    pub wake: Arc<OwnedFd>,
}

/// A worker thread.
pub struct ServeWorker {
    parts: WorkerParts,
    epoll: OwnedFd,
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
    /// Connections that can continue immediately.
    ready: VecDeque<u64>,
    /// Connections that continue after [`MOMENT`], because a rate limit delays them.
    later: Vec<u64>,
    accepts: bool,
    /// `true` if the worker serves streams, and ends with the last of them.
    ends_when_empty: bool,
    /// The slot that was examined last in the search for a connection to evict.
    hand: usize,
    looked: Instant,
    /// CPU time of the thread at `looked`.
    used: Usage,
}

struct ConnectionSlot {
    connection: Option<ServeConnection>,
    /// Generation of the slot. Tokens contain it, to distinguish the connection from earlier ones in this slot.
    turn: u32,
    /// `true` if the connection is in `ready` or `later`.
    is_queued: bool,
}

const WAKE: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 4096;
const EVENTS: usize = 256;
/// Maximum time for queued connections before the next check for events.
const SLICE: Duration = Duration::from_millis(2);
/// Delay for connections that exceed a rate limit.
const MOMENT: Duration = Duration::from_millis(20);
/// Interval of the timeout checks.
const TICK: Duration = Duration::from_secs(1);

impl ServeWorker {
    /// Creates the epoll instance and registers the listening sockets.
    pub fn new(parts: WorkerParts) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &parts.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let mut worker = Self {
            parts,
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            later: Vec::new(),
            accepts: false,
            ends_when_empty: false,
            hand: 0,
            looked: Instant::now(),
            used: Usage::now_thread(),
        };
        worker.accept_again()?;
        let limit = worker.parts.tools.site.limit_each;
        for stream in std::mem::take(&mut worker.parts.streams) {
            worker.ends_when_empty = true;
            let ends = ConnectionEnds::of_stream(stream);
            worker.welcome(ServeConnection::new(ends, None, limit));
        }
        Ok(worker)
    }

    /// Runs until the server is stopped and the shutdown is complete.
    pub fn run(mut self) -> Result<(), Errno> {
        let mut events = vec![NO_EVENT; EVENTS];
        loop {
            let stage = self.parts.stage.load(Ordering::Relaxed);
            if stage != RUNNING && !self.parts.tools.is_ending {
                self.begin_to_end();
            }
            let is_over = self.ends_when_empty || stage == ENDING;
            if stage == NOW || is_over && self.is_empty() {
                self.close_all();
                return Ok(());
            }
            let timeout = self.timeout();
            let count = match wait(&self.epoll, &mut events, timeout.as_ref()) {
                Err(Errno::INTR) => 0,
                answer => answer?,
            };
            // Handles the wake-up event first, so that a new profile or stage applies to the whole batch.
            events[..count].sort_by_key(|event| event.data.u64() != WAKE);
            for event in &events[..count] {
                self.handle(*event);
            }
            self.continue_queued();
            if self.looked.elapsed() >= TICK {
                self.tick();
            }
        }
    }

    /// Continues the queued connections, each at most once. Stops after [`SLICE`], as connections with events wait too.
    fn continue_queued(&mut self) {
        self.ready.extend(self.later.drain(..));
        let began = Instant::now();
        for _ in 0..self.ready.len() {
            if began.elapsed() >= SLICE {
                return;
            }
            let Some(token) = self.ready.pop_front() else { return };
            if let Some(slot) = self.slot(token) {
                slot.is_queued = false;
                self.advance(token);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns the epoll timeout: none to wait only for new clients with nothing cached, 0 if a connection is ready, else
    /// at most a tick.
    fn timeout(&self) -> Option<Timespec> {
        let wait = if !self.ready.is_empty() {
            Duration::ZERO
        } else if self.is_empty() && self.accepts && self.parts.tools.caches_nothing() {
            return None;
        } else if !self.later.is_empty() {
            MOMENT
        } else {
            TICK.saturating_sub(self.looked.elapsed())
        };
        // One extra millisecond, so that the loop does not spin just before the tick.
        let wait = if wait.is_zero() { wait } else { wait + Duration::from_millis(1) };
        Timespec::try_from(wait).ok()
    }

    fn handle(&mut self, event: Event) {
        let token = event.data.u64();
        if token == WAKE {
            return self.woken();
        }
        if token >= LISTENERS {
            return self.accept((token - LISTENERS) as usize);
        }
        let flags = event.flags;
        let Some(slot) = self.slot(token) else { return };
        let is_queued = slot.is_queued;
        if let Some(connection) = &mut slot.connection {
            connection.ready(flags);
        }
        if !is_queued {
            self.advance(token);
        }
    }

    /// Handles a wake-up: the stage or the profile has changed, or helpers have finished work for connections.
    fn woken(&mut self) {
        let _ = io::read(&self.parts.wake, &mut [0; 8]);
        self.parts.tools.look_at_policy();
        for token in self.parts.tools.readahead.mailbox.take() {
            self.advance(token);
        }
    }

    /// Returns the slot of a token, if it still holds that connection.
    fn slot(&mut self, token: u64) -> Option<&mut ConnectionSlot> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        if slot.turn == (token >> 32) as u32 { Some(slot) } else { None }
    }

    fn advance(&mut self, token: u64) {
        let index = token as u32 as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.turn != (token >> 32) as u32 {
            return;
        }
        let Some(connection) = &mut slot.connection else { return };
        self.parts.tools.readahead.token = token;
        self.parts.tools.readahead.client = connection.client();
        let next = connection.advance(&mut self.parts.tools);
        let held = connection.held();
        self.follow(token, next);
        self.wait(token, held);
    }

    /// Records the memory of a connection that waits for its client. If the total is too large, releases the memory of
    /// the connections that have waited longest.
    fn wait(&mut self, token: u64, held: u64) {
        if !self.parts.waiting.count(token, held) {
            return;
        }
        while let Some(token) = self.parts.waiting.longest() {
            let Some(slot) = self.slots.get_mut(token as u32 as usize) else { continue };
            let is_it = slot.turn == (token >> 32) as u32;
            let Some(connection) = slot.connection.as_mut().filter(|_| is_it) else { continue };
            connection.park(&self.parts.tools);
            let is_stuck = connection.is_stuck();
            self.parts.tools.site.accounts.parked.fetch_add(1, Ordering::Relaxed);
            if is_stuck {
                let why = "the client read nothing while --memory was used up";
                connection.abandon(&mut self.parts.tools, why);
                self.close(token as u32 as usize);
            }
        }
    }

    /// Performs the next action of a connection.
    fn follow(&mut self, token: u64, next: NextAction) {
        let index = token as u32 as usize;
        let slot = &mut self.slots[index];
        match next {
            NextAction::Wait => {}
            NextAction::Close => self.close(index),
            NextAction::Go | NextAction::Later if slot.is_queued => {}
            NextAction::Go => {
                slot.is_queued = true;
                self.ready.push_back(token);
            }
            NextAction::Later => {
                slot.is_queued = true;
                self.later.push(token);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(connection) = slot.connection.take() {
            if let Some(client) = connection.client() {
                self.parts.tools.site.addresses.leave(client);
            }
            self.parts.waiting.count(u64::from(slot.turn) << 32 | index as u64, 0);
            slot.turn = slot.turn.wrapping_add(1) & 0x7fff_ffff;
            slot.is_queued = false;
            self.free.push(index as u32);
            let before = self.parts.tools.site.accounts.connections.fetch_sub(1, Ordering::Relaxed);
            if !self.accepts && before <= self.parts.most && !self.parts.tools.is_ending {
                let _ = self.accept_again();
            }
        }
    }

    fn close_all(&mut self) {
        for index in 0..self.slots.len() {
            if let Some(connection) = &mut self.slots[index].connection {
                connection.abandon(&mut self.parts.tools, "the server stopped");
            }
            self.close(index);
        }
    }

    fn begin_to_end(&mut self) {
        self.stop_accepting();
        self.parts.listeners.clear();
        self.parts.tools.is_ending = true;
        for index in 0..self.slots.len() {
            if self.slots[index].connection.as_ref().is_some_and(ServeConnection::is_idle) {
                self.close(index);
            }
        }
    }

    fn tick(&mut self) {
        let used = Usage::now_thread();
        let busy = used.since(&self.used).cpu();
        // Busy for more than half of the interval.
        let is_busy = busy * 2 >= self.looked.elapsed();
        self.parts.tools.plans.set_load(if is_busy { Load::Loaded } else { Load::Idle });
        (self.looked, self.used) = (Instant::now(), used);
        self.parts.tools.store.get_mut().turn();
        self.parts.tools.site.names.expire();
        if !self.accepts && !self.parts.tools.is_ending {
            let _ = self.accept_again();
        }
        for index in 0..self.slots.len() {
            let turn = self.slots[index].turn;
            let Some(connection) = &mut self.slots[index].connection else { continue };
            let token = u64::from(turn) << 32 | index as u64;
            self.parts.tools.readahead.token = token;
            self.parts.tools.readahead.client = connection.client();
            let next = connection.tick(&mut self.parts.tools, &self.parts.timeouts);
            let held = connection.held();
            self.follow(token, next);
            self.parts.waiting.count(token, held);
        }
        let count = std::mem::take(&mut self.parts.tools.readahead.count);
        self.parts.tools.site.accounts.readaheads.fetch_add(count, Ordering::Relaxed);
    }
}
