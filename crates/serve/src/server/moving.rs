//! A transfer that owns its ends: for a loop with thousands of them.
//!
//! A `TransferRun` borrows its descriptors. An async block may hold both what is borrowed and what borrows
//! it; that is all it is used for: nothing wakes it, and the worker polls it when the socket has room.

use std::{
    cell::Cell,
    future::poll_fn,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use thalweg_core::{
    End, Error, Guarantees, Kind, Outcome, Plan, Report, Sink, Source, Step, Transfer, TransferRun,
    Unit,
};
use thalweg_sys::Errno;

use super::opened::Opened;
use crate::http::range::Stretch;

/// A stretch of a file on its way into a socket.
pub struct Moving {
    steps: Pin<Box<dyn Future<Output = Outcome>>>,
    told: Rc<Told>,
    held: u64,
}

#[derive(Default)]
struct Told {
    moved: Cell<u64>,
    is_blocked: Cell<bool>,
    is_to_stop: Cell<bool>,
    /// The most that the next step moves.
    most: Cell<u64>,
}

/// How a step ended.
pub enum Moved {
    /// There is room for more.
    Some,
    /// The socket has no room.
    Blocked,
    /// It is over.
    End(Outcome),
}

/// What is to be moved.
pub struct Job {
    pub file: Arc<Opened>,
    pub socket: Rc<OwnedFd>,
    pub stretch: Stretch,
    pub needs: Guarantees,
    pub plan: Arc<Plan>,
}

impl Moving {
    /// Begins.
    pub fn new(job: Job) -> Self {
        let told = Rc::new(Told::default());
        let held = memory(&job.plan).min(job.stretch.len());
        Self { steps: Box::pin(steps(job, Rc::clone(&told))), told, held }
    }

    /// What its buffer or its pipe holds at the most.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that are in the socket.
    pub fn moved(&self) -> u64 {
        self.told.moved.get()
    }

    /// One step of at most so many bytes.
    pub fn advance(&mut self, most: u64) -> Moved {
        self.told.most.set(most);
        match self.steps.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Moved::End(outcome),
            Poll::Pending if self.told.is_blocked.get() => Moved::Blocked,
            Poll::Pending => Moved::Some,
        }
    }

    /// Ends it before its time: what came of it so far.
    pub fn stop(mut self) -> Option<Outcome> {
        self.told.is_to_stop.set(true);
        match self.advance(1) {
            Moved::End(outcome) => Some(outcome),
            Moved::Some | Moved::Blocked => None,
        }
    }
}

/// What the first mechanism of a plan asks for.
fn memory(plan: &Plan) -> u64 {
    let ladder = plan.ladder();
    let Some((mechanism, tuning)) = ladder.first() else { return 0 };
    let info = mechanism.info();
    let sizes = info.knobs.iter().filter(|knob| knob.unit == Unit::Bytes);
    sizes.map(|knob| info.knob(tuning, knob.name)).sum()
}

async fn steps(job: Job, told: Rc<Told>) -> Outcome {
    let Job { file, socket, stretch, needs, plan } = job;
    let end = |fd, kind, at| End { fd, kind, at };
    let transfer = Transfer {
        source: Source::Fd(end(file.as_fd(), Kind::File, Some(stretch.from))),
        sink: Sink::Fd(end(socket.as_fd(), Kind::Socket, None)),
        len: Some(stretch.len()),
        needs,
    };
    let Ok(mut run) = TransferRun::start(transfer, &plan) else {
        // Every socket here is nonblocking, and every plan was asked for steps.
        let (mechanism, call, errno) = ("read-write", "fcntl", Errno::INVAL);
        let error = Error { mechanism, call, errno, side: thalweg_core::Side::Sink, moved: 0 };
        return Outcome { report: Report::default(), stopped: false, error: Some(error) };
    };
    while !told.is_to_stop.get() {
        let step = run.advance(told.most.get());
        told.moved.set(run.bytes());
        match step {
            Step::Moved => told.is_blocked.set(false),
            Step::Blocked(_) => told.is_blocked.set(true),
            Step::Done | Step::Failed(_) => break,
        }
        pause().await;
    }
    run.end()
}

/// Comes back once it is asked again.
async fn pause() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}
