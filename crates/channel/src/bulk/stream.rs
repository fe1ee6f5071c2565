//! What the arms through a pipe or a socket have in common: everything in, everything out, and what
//! an end that closes means. None of their calls waits for long: an end that stays open is no sign of
//! life, for a child that the peer forked has it too.

use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use thalweg_sys::Errno;

use crate::bulk::arm::Broken;
use crate::bulk::control::{Control, Note, Say};
use crate::shared::liveness::Gone;
use crate::shared::stop::Stop;

/// A call by its name, its descriptor, and the call, which answers EAGAIN after a while.
pub(crate) type Call<'f, F> = (&'static str, BorrowedFd<'f>, F);

/// Announces the buffer, puts all of it in by pieces of at most `piece` bytes, waits for the answer.
pub(crate) fn push(
    bytes: &[u8],
    piece: usize,
    control: &mut Control,
    (call, fd, mut put): Call<'_, impl FnMut(&[u8]) -> Result<usize, Errno>>,
) -> Result<(), Stop> {
    control.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match put(&rest[..rest.len().min(piece)]) {
            Ok(0) => return Err(Stop::refused(call, Errno::INVAL)),
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => control.wanted()?,
            Err(Errno::AGAIN) => match control.check() {
                Ok(()) => control.await_ready(fd, PollFlags::OUT)?,
                Err(Stop::Gone(_)) => return Err(deserted(control)),
                Err(stop) => return Err(stop),
            },
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(deserted(control)),
            Err(errno) => return Err(Stop::refused(call, errno)),
        }
    }
    control.expect(Say::Done).map(drop)
}

/// The receiver closed its end: it is gone, or it refused and says so.
pub(crate) fn deserted(control: &mut Control) -> Stop {
    match control.expect(Say::Done) {
        Err(stop) => stop,
        Ok(_) => Stop::corrupt("done before the end"),
    }
}

/// Takes as many bytes as fill `into`.
pub(crate) fn pull(
    into: &mut [u8],
    piece: usize,
    control: &mut Control,
    (call, fd, mut get): Call<'_, impl FnMut(&mut [u8]) -> Result<usize, Errno>>,
) -> Result<(), Broken> {
    let (mut filled, mut ended) = (0, None);
    while filled < into.len() {
        let most = piece.min(into.len() - filled);
        let answer = get(&mut into[filled..filled + most]);
        let broken = |stop| Broken { delivered: filled as u64, stop };
        match (answer, ended.take()) {
            (Ok(0) | Err(Errno::CONNRESET), _) => return Err(broken(Stop::Gone(Gone::Died))),
            (Ok(count), _) => filled += count,
            (Err(Errno::INTR), _) => control.wanted().map_err(broken)?,
            (Err(Errno::AGAIN), Some(stop)) => return Err(broken(stop)),
            (Err(Errno::AGAIN), None) => match control.check() {
                Ok(()) => control.await_ready(fd, PollFlags::IN).map_err(broken)?,
                // It may have written last and died then: one more look.
                Err(stop) => ended = Some(stop),
            },
            (Err(errno), _) => return Err(broken(Stop::refused(call, errno))),
        }
    }
    Ok(())
}

/// The same, of pages that are the sender's own. A sender that gave up may have written to them
/// before they were read: then how much of it is true nobody can say.
pub(crate) fn pull_pages(
    into: &mut [u8],
    piece: usize,
    control: &mut Control,
    call: Call<'_, impl FnMut(&mut [u8]) -> Result<usize, Errno>>,
) -> Result<(), Broken> {
    let pulled = pull(into, piece, control, call).map_err(|broken| broken.stop);
    pulled.and_then(|()| control.check_peer()).map_err(Broken::from)
}
