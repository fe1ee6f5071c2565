//! One transfer by one mechanism, without fallback: the timed part of every arm that moves.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};
use thalweg_core::{Mechanism, Side, Sink, Source, Transfer, Tuning, Unfit, driver::Pace};
use thalweg_sys::io;

use crate::{measure::schedule::Failure, probes::tune_copy::Stop};

// As long as a step of the driver, so that the mechanism is asked for as much at a time.
const STEP: Duration = Duration::from_millis(40);

/// Opens the mechanism, moves the whole length of the transfer, calls `at_end` while the mechanism
/// still holds what it took, and closes it. Whatever the driver would step down for is a failure.
pub(crate) fn move_all(
    (mechanism, tuning): (&dyn Mechanism, &Tuning),
    transfer: Transfer<'_>,
    stop: &Stop<'_>,
    at_end: &mut dyn FnMut(),
) -> Result<u64, Failure> {
    let len = transfer.len.unwrap_or(u64::MAX);
    let source = if let Source::Fd(end) = &transfer.source { Some(end.fd) } else { None };
    let sink = if let Sink::Fd(end) = &transfer.sink { Some(end.fd) } else { None };
    let mut mover = mechanism.open(transfer, tuning).map_err(|e| Failure::Unfit(e.into()))?;
    let mut pace = Pace::new(None, STEP);
    let mut moved = 0;
    while moved < len {
        let began = Instant::now();
        match mover.advance(pace.budget().min(len - moved)) {
            Ok(0) => {
                let text = format!("stopped after {moved} of {len} bytes");
                return Err(Failure::Unfit(Unfit::because(text)));
            }
            Ok(count) => {
                moved += count;
                pace.moved(count, began.elapsed());
            }
            Err(error) if error.is_interruption() => moved += error.moved,
            Err(error) if error.is_would_block() => {
                moved += error.moved;
                wait((source, sink), error.side);
            }
            Err(error) => return Err(Failure::Unfit(error.into())),
        }
        stop()?;
    }
    at_end();
    Ok(moved)
}

/// Waits a moment for the ends that a call found not ready, as the driver does.
fn wait((source, sink): (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>), side: Side) {
    // Whatever it answers, the mechanism is asked again and finds out.
    if let Some(fd) = source.filter(|_| side != Side::Sink) {
        let _ = io::wait_readable(fd, Some(STEP));
    }
    if let Some(fd) = sink.filter(|_| side != Side::Source) {
        let _ = io::wait_writable(fd, Some(STEP));
    }
}
