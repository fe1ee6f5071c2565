//! Uses two threads and one pipe: one thread splices into the pipe, the other out of it. Each time the pipe is filled
//! or emptied, a thread must be woken. On most machines, this costs more than it gains. The mechanism exists because a
//! published measurement found the opposite. The filling thread takes only as many bytes as one step allows.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};
use thalweg_sys::{
    Errno, fault, io,
    pipe::{self, SpliceMode},
};

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, Unit, advance_by_steps,
    cadence::CANCEL_CHECK,
    pipe_buffer::{PipeBuffer, chunk},
};

/// Splices with a filling thread, a pipe, and the calling thread.
pub struct SpliceThreaded;

static INFO: Info = Info {
    name: "splice-threaded",
    summary: "move pages through a kernel pipe with one thread on each side",
    calls: &["splice"],
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED),
        // Page-cache pages stay shared with the file, so the reader sees later writes to it.
        Pair::new(Kind::File, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Null, Guarantees::COPIED),
        Pair::new(Kind::Device, Kind::File, Guarantees::COPIED),
        // Pages stay shared with the page cache of the block device.
        Pair::new(Kind::Device, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Null, Guarantees::COPIED),
    ],
    knobs: &[Knob {
        name: "pipe",
        summary: "requested capacity of the pipe; each call moves at most the granted capacity",
        unit: Unit::Bytes,
        values: &[1 << 20, 64 << 10, 256 << 10],
    }],
    role: Role::Mover,
    nature: Nature {
        waits: Some("its calls block until its second thread has finished"),
        ..Nature::PLAIN
    },
};

struct SpliceThreadedMover<'a> {
    sink: End<'a>,
    // `None` only during drop: closing the pipe's reading end wakes the filling thread.
    through: Option<PipeBuffer>,
    // Bytes that the filling thread has put into the pipe since the beginning, as far as this thread has seen.
    seen: u64,
    shared: Arc<FillShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct FillShared {
    state: Mutex<FillState>,
    change: Condvar,
}

#[derive(Default)]
struct FillState {
    // Since the beginning: the bytes that the filling thread may take, and those that it took.
    allowed: u64,
    taken: u64,
    // `true` while a splice is in progress; `taken` is then not final.
    busy: bool,
    // The reason for a pause: the source returned 0 or failed. The next allowance clears it.
    pause: Option<Result<(), Errno>>,
    over: bool,
    // Number of threads that wait for a change. If it is 0, the system call that wakes them is skipped.
    sleepers: u32,
}

struct Filler {
    shared: Arc<FillShared>,
    source: OwnedFd,
    at: Option<u64>,
    into: OwnedFd,
    capacity: u64,
    // `true` for a device, which may never have data. A splice that waits for data cannot be
    // cancelled, so the thread polls first.
    patient: bool,
}

impl Mechanism for SpliceThreaded {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because("splice fails with EINVAL on O_APPEND destinations"));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let through = PipeBuffer::new(&INFO, INFO.bytes(tuning, "pipe"))?;
        let own = |fd: std::os::fd::BorrowedFd<'_>| {
            let own = fd.try_clone_to_owned();
            own.map_err(|e| INFO.error("fcntl", Side::Own, errno_of(&e), 0))
        };
        let shared = Arc::new(FillShared::default());
        let filler = Filler {
            shared: Arc::clone(&shared),
            source: own(source.fd)?,
            at: source.at,
            into: own(through.writer())?,
            capacity: through.capacity(),
            patient: source.kind == Kind::Device,
        };
        let inherited = fault::inherit();
        let thread = std::thread::Builder::new()
            .name(INFO.name.to_owned())
            .spawn(move || inherited.enter(|| filler.fill()))
            .map_err(|e| INFO.error("clone", Side::Own, errno_of(&e), 0))?;
        let (through, thread) = (Some(through), Some(thread));
        Ok(Box::new(SpliceThreadedMover { sink, through, seen: 0, shared, thread }))
    }
}

impl Mover for SpliceThreadedMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        self.shared.allow((self.seen - self.in_flight()) + budget);
        let answer = advance_by_steps(budget, |_| self.step());
        if !matches!(answer, Ok(moved) if moved == budget) {
            // After `halt`, the filling thread takes no more bytes, so this number is final.
            let taken = self.shared.halt();
            self.learn(taken);
        }
        answer
    }

    fn in_flight(&self) -> u64 {
        self.through.as_ref().map_or(0, PipeBuffer::waiting)
    }

    fn drain(&mut self) -> Result<u64, Error> {
        self.through.as_mut().map_or(Ok(0), |through| through.drain(&INFO, &mut self.sink))
    }
}

impl SpliceThreadedMover<'_> {
    fn step(&mut self) -> Result<u64, Error> {
        if self.in_flight() == 0 {
            let (taken, pause) = self.shared.more_than(self.seen);
            self.learn(taken);
            let failed = |errno| Err(INFO.error("splice", Side::Source, errno, 0));
            match pause {
                _ if self.in_flight() > 0 => {}
                Some(Ok(())) => return Ok(0),
                Some(Err(errno)) => return failed(errno),
                // No bytes arrived within [`CANCEL_CHECK`]. Return, so that the driver calls the watcher.
                None => return failed(Errno::AGAIN),
            }
        }
        let Some(through) = &mut self.through else { return Ok(0) };
        through.empty(&mut self.sink).map_err(|e| INFO.error("splice", Side::Sink, e, 0))
    }

    fn learn(&mut self, taken: u64) {
        if let Some(through) = &mut self.through {
            through.filled(taken - self.seen);
        }
        self.seen = taken;
    }
}

impl Drop for SpliceThreadedMover<'_> {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.change.notify_all();
        self.through = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Filler {
    fn fill(mut self) {
        while self.shared.wait_for_allowance() {
            if self.patient && io::wait_readable(&self.source, Some(CANCEL_CHECK)) == Ok(false) {
                continue;
            }
            let Some(most) = self.shared.begin() else { continue };
            let len = chunk(most.min(self.capacity));
            let (from, to) = (&self.source, &self.into);
            let answer = pipe::splice(from, self.at, to, None, len, SpliceMode::NonBlock);
            let no_room = answer == Err(Errno::AGAIN)
                && io::wait_writable(to, Some(std::time::Duration::ZERO)) == Ok(false);
            if let (Ok(got), Some(at)) = (answer, &mut self.at) {
                *at += got as u64;
            }
            self.shared.end(if no_room { None } else { Some(answer) });
            if no_room {
                let _ = io::wait_writable(to, Some(CANCEL_CHECK));
            }
        }
    }
}

impl FillShared {
    fn lock(&self) -> MutexGuard<'_, FillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows the filling thread to take up to `total` bytes since the beginning.
    fn allow(&self, total: u64) {
        let mut state = self.lock();
        state.allowed = total;
        state.pause = None;
        drop(state);
        self.change.notify_all();
    }

    /// Stops the filling thread until the next allowance. Returns the total number of bytes that it took.
    fn halt(&self) -> u64 {
        let mut state = self.lock();
        state.allowed = 0;
        state.sleepers += 1;
        let waited = self.change.wait_while(state, |state| state.busy);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state.taken
    }

    /// Waits until the filling thread has taken more than `seen` bytes or pauses, or until [`CANCEL_CHECK`] has passed.
    fn more_than(&self, seen: u64) -> (u64, Option<Result<(), Errno>>) {
        let nothing = |state: &mut FillState| state.taken == seen && state.pause.is_none();
        let mut state = self.lock();
        state.sleepers += 1;
        let waited = self.change.wait_timeout_while(state, CANCEL_CHECK, nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        (state.taken, state.pause)
    }

    /// Waits until more may be taken. Returns `false` once the transfer is over.
    fn wait_for_allowance(&self) -> bool {
        let idle = |state: &mut FillState| !state.over && !state.may_take();
        let waited = self.change.wait_while(self.lock(), idle);
        !waited.unwrap_or_else(PoisonError::into_inner).over
    }

    /// Marks the start of a splice. Returns the largest number of bytes that it may take; `None` if it must not start.
    fn begin(&self) -> Option<u64> {
        let mut state = self.lock();
        if state.over || !state.may_take() {
            return None;
        }
        state.busy = true;
        Some(state.allowed - state.taken)
    }

    /// Marks the end of a splice. `answer` is `None` if the pipe had no room.
    fn end(&self, answer: Option<Result<usize, Errno>>) {
        let mut state = self.lock();
        state.busy = false;
        match answer {
            None => {}
            Some(Ok(0)) => state.pause = Some(Ok(())),
            Some(Ok(got)) => state.taken += got as u64,
            Some(Err(errno)) => state.pause = Some(Err(errno)),
        }
        let awaited = state.sleepers > 0;
        drop(state);
        if awaited {
            self.change.notify_all();
        }
    }
}

impl FillState {
    fn may_take(&self) -> bool {
        self.pause.is_none() && self.taken < self.allowed
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::NOMEM)
}
