//! Copies one pipe to several sinks by tee and splice. Every sink receives the pages without a copy
//! in user space.
//!
//! A turn duplicates the same bytes by tee into a separate pipe for each sink. It then empties
//! those pipes into the sinks, and removes the bytes from the source last. If a call is refused,
//! plain read and write replace it.

use std::{os::fd::OwnedFd, time::Instant};
use thalweg_sys::{
    Errno,
    buffer::Buffer,
    host, io,
    pipe::{self, SpliceMode},
};

use super::Ride;
use crate::{
    Error, Guarantees, Info, Kind, Nature, Pair, Role, Side, StepDown,
    driver::TransferStop,
    error::symbol,
    mechanisms::LAST_RESORT,
    pipe_buffer::{PipeBuffer, chunk},
};

/// The name under which reports and errors show this method. It is not in the list of mechanisms, because for one sink
/// it takes two calls where splice takes one.
static INFO: Info = Info {
    name: "tee",
    summary: "duplicate the data of one pipe for each sink, then consume it",
    calls: &["tee", "splice"],
    // No process can write to pages that are in a pipe.
    pairs: &[Pair::new(Kind::Pipe, Kind::Pipe, Guarantees::COPIED)],
    knobs: &[],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct SinkPipe {
    through: PipeBuffer,
    // `true` while the sink accepts spliced pages.
    splices: bool,
}

/// Repeats turns until the source seems to be at its end, or the kernel refuses tee. The caller
/// then continues with read and write, which detect the real end.
pub(super) fn run(ride: &mut Ride<'_, '_>) -> Result<(), TransferStop> {
    let wished = host::pipe_max_size().map_or(0, chunk);
    let lanes = ride
        .arms
        .iter()
        .map(|_| PipeBuffer::new(&INFO, wished).map(|through| SinkPipe { through, splices: true }));
    let mut lanes: Vec<SinkPipe> = match lanes.collect() {
        Ok(lanes) => lanes,
        Err(error) => {
            step_down(ride, &error);
            return Ok(());
        }
    };
    let nowhere = io::open_null();
    ride.begin_share(INFO.name);
    while ride.goes_on() {
        let began = Instant::now();
        let Some(turn) = show(ride, &mut lanes)? else { return Ok(()) };
        empty(ride, &mut lanes)?;
        take(ride, &turn, nowhere.as_ref())?;
        ride.turn_done(turn.len, began)?;
    }
    Ok(())
}

/// The bytes of one turn, and the number that each sink received by tee.
struct TeeTurn {
    len: u64,
    shown: Vec<u64>,
}

/// Duplicates the source's data by tee into the pipe of every open sink. `None` if the plain loop
/// should continue from here.
fn show(ride: &mut Ride<'_, '_>, lanes: &mut [SinkPipe]) -> Result<Option<TeeTurn>, TransferStop> {
    let mut turn = TeeTurn { len: 0, shown: vec![0; lanes.len()] };
    for (n, lane) in lanes.iter_mut().enumerate() {
        if !ride.arms[n].is_open() {
            continue;
        }
        let through = &mut lane.through;
        let most =
            if turn.len == 0 { ride.pace.budget().min(through.capacity()) } else { turn.len };
        // Only the first tee may wait for data. The later ones find this data.
        let mode = if turn.len == 0 { SpliceMode::Block } else { SpliceMode::NonBlock };
        let answer = loop {
            match pipe::tee(ride.source.fd, through.writer(), chunk(most), mode) {
                Err(errno) if turn.len == 0 && matches!(errno, Errno::INTR | Errno::AGAIN) => {
                    ride.again(errno, "tee", Side::Source, ride.source.fd)?;
                }
                Err(Errno::INTR) => ride.look()?,
                answer => break answer,
            }
        };
        match answer {
            Ok(count) => {
                through.filled(count as u64);
                turn.shown[n] = count as u64;
            }
            Err(errno) if turn.len == 0 => {
                step_down(ride, &INFO.error("tee", Side::Either, errno, 0));
                return Ok(None);
            }
            // This sink got nothing by tee. `take` reads the bytes from the source and writes them
            // to the sink.
            Err(_) => {}
        }
        if turn.len == 0 {
            turn.len = turn.shown[n];
            if turn.len == 0 {
                return Ok(None);
            }
        }
    }
    Ok(Some(turn))
}

/// Moves the bytes in the pipes to the sinks.
fn empty(ride: &mut Ride<'_, '_>, lanes: &mut [SinkPipe]) -> Result<(), TransferStop> {
    for (n, lane) in lanes.iter_mut().enumerate() {
        while lane.through.waiting() > 0 && ride.arms[n].is_open() {
            let arm = &mut ride.arms[n];
            let fd = arm.end.fd;
            let moved = if lane.splices {
                let moved = lane.through.empty(&mut arm.end);
                moved.map_err(|e| INFO.error("splice", Side::Sink, e, 0))
            } else {
                lane.through.drain(LAST_RESORT.info(), &mut arm.end)
            };
            match moved {
                Ok(0) => lane.splices = false,
                Ok(count) => arm.delivered.bytes += count,
                Err(error) => {
                    arm.delivered.bytes += error.moved;
                    if error.is_interruption() || error.is_would_block() {
                        ride.again(error.errno, error.call, Side::Sink, fd)?;
                    } else if lane.splices {
                        // A plain write of these bytes either works or reports the true errno.
                        lane.splices = false;
                        step_down(ride, &error);
                    } else {
                        ride.arms[n].fail(error);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Removes the turn's bytes from the source. If a sink received fewer bytes by tee, writes the
/// missing ones to it.
fn take(
    ride: &mut Ride<'_, '_>,
    turn: &TeeTurn,
    nowhere: Option<&OwnedFd>,
) -> Result<(), TransferStop> {
    let mut left = turn.len;
    if ride.arms.iter().zip(&turn.shown).all(|(arm, shown)| !arm.is_open() || *shown == turn.len) {
        left -= discard(ride, turn.len, nowhere)?;
    }
    let mut buffer = Buffer::new(chunk(left));
    let mut filled = 0;
    while filled < buffer.len() {
        let got = ride.read(&mut buffer[filled..])?;
        if got == 0 {
            // Another process also reads this pipe, and has taken bytes that the sinks already
            // received.
            return Err(TransferStop::Failed(INFO.error("read", Side::Source, Errno::BUSY, 0)));
        }
        filled += got;
    }
    for (n, shown) in turn.shown.iter().enumerate() {
        let missing = chunk((turn.len - shown).min(left));
        ride.deliver(n, &buffer[buffer.len() - missing..])?;
    }
    Ok(())
}

/// Discards `len` bytes of the source without copying them. Returns the number of bytes discarded.
fn discard(ride: &mut Ride<'_, '_>, len: u64, to: Option<&OwnedFd>) -> Result<u64, TransferStop> {
    let Some(to) = to else { return Ok(0) };
    let mut done = 0;
    while done < len {
        let mode = SpliceMode::NonBlock;
        match pipe::splice(ride.source.fd, None, to, None, chunk(len - done), mode) {
            Ok(0) => break,
            Ok(count) => {
                done += count as u64;
                ride.taken += count as u64;
            }
            Err(Errno::INTR) => ride.look()?,
            Err(_) => break,
        }
    }
    Ok(done)
}

fn step_down(ride: &mut Ride<'_, '_>, error: &Error) {
    ride.report.steps_down.push(StepDown {
        from: error.mechanism,
        to: LAST_RESORT.info().name,
        at: ride.delivered(),
        call: error.call,
        errno: symbol(error.errno),
        reason: error.errno_name(),
    });
}
