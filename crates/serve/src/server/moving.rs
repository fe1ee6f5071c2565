//! A transfer that owns its descriptors, for an event loop with thousands of transfers.
//!
//! A `TransferRun` borrows its descriptors. An async block can hold both the owner and the borrower, which is its only
//! purpose here. No waker is used: the worker polls the future when the socket is writable.

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

use super::opened::ServedFile;
use crate::http::range::ByteRange;

/// A transfer of a file range into a socket.
pub struct OwnedTransfer {
    steps: Pin<Box<dyn Future<Output = Outcome>>>,
    control: Rc<TransferControl>,
    held: u64,
}

#[derive(Default)]
struct TransferControl {
    moved: Cell<u64>,
    is_blocked: Cell<bool>,
    is_to_stop: Cell<bool>,
    /// Maximum number of bytes of the next step.
    most: Cell<u64>,
}

/// Result of a step.
pub enum TransferStep {
    /// The socket accepts more data.
    Some,
    /// The socket is full.
    Blocked,
    /// The transfer has ended.
    End(Outcome),
}

/// Description of a transfer.
pub struct TransferJob {
    pub file: Arc<ServedFile>,
    pub socket: Rc<OwnedFd>,
    pub sink: Kind,
    pub stretch: ByteRange,
    pub needs: Guarantees,
    pub plan: Arc<Plan>,
}

impl OwnedTransfer {
    /// Starts a transfer.
    pub fn new(job: TransferJob) -> Self {
        let control = Rc::new(TransferControl::default());
        let held = memory(&job.plan).min(job.stretch.len());
        Self { steps: Box::pin(steps(job, Rc::clone(&control))), control, held }
    }

    /// Returns the maximum size, in bytes, of its buffer or pipe.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the number of bytes written to the socket.
    pub fn moved(&self) -> u64 {
        self.control.moved.get()
    }

    /// Makes one step of at most `most` bytes.
    pub fn advance(&mut self, most: u64) -> TransferStep {
        self.control.most.set(most);
        match self.steps.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => TransferStep::End(outcome),
            Poll::Pending if self.control.is_blocked.get() => TransferStep::Blocked,
            Poll::Pending => TransferStep::Some,
        }
    }

    /// Stops the transfer early and returns its outcome so far.
    pub fn stop(mut self) -> Option<Outcome> {
        self.control.is_to_stop.set(true);
        match self.advance(1) {
            TransferStep::End(outcome) => Some(outcome),
            TransferStep::Some | TransferStep::Blocked => None,
        }
    }
}

/// Returns the memory that the first mechanism of a plan uses.
fn memory(plan: &Plan) -> u64 {
    let ladder = plan.ladder();
    let Some((mechanism, tuning)) = ladder.first() else { return 0 };
    let info = mechanism.info();
    let sizes = info.knobs.iter().filter(|knob| knob.unit == Unit::Bytes);
    sizes.map(|knob| info.knob(tuning, knob.name)).sum()
}

async fn steps(job: TransferJob, control: Rc<TransferControl>) -> Outcome {
    let TransferJob { file, socket, sink, stretch, needs, plan } = job;
    let end = |fd, kind, at| End { fd, kind, at };
    let transfer = Transfer {
        source: Source::Fd(end(file.as_fd(), Kind::File, Some(stretch.from))),
        sink: Sink::Fd(end(socket.as_fd(), sink, None)),
        len: Some(stretch.len()),
        needs,
    };
    let Ok(mut run) = TransferRun::start(transfer, &plan) else {
        // Cannot happen: all sockets here are nonblocking, and all plans are made for stepwise execution.
        let (mechanism, call, errno) = ("read-write", "fcntl", Errno::INVAL);
        let error = Error { mechanism, call, errno, side: thalweg_core::Side::Sink, moved: 0 };
        return Outcome { report: Report::default(), stopped: false, error: Some(error) };
    };
    while !control.is_to_stop.get() {
        let step = run.advance(control.most.get());
        control.moved.set(run.bytes());
        match step {
            Step::Moved => control.is_blocked.set(false),
            Step::Blocked(_) => control.is_blocked.set(true),
            Step::Done | Step::Failed(_) => break,
        }
        pause().await;
    }
    run.end()
}

/// Suspends once: returns `Pending` at the first poll and `Ready` at the second.
async fn pause() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}
