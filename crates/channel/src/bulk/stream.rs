//! What the arms through a pipe or a socket have in common: everything in, everything out, and what
//! an end that closes means. None of their calls waits for long: an end that stays open is no sign of
//! life, for a child that the peer forked has it too.

use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use thalweg_sys::Errno;

use crate::bulk::arm::Broken;
use crate::bulk::talk::{Note, Say, Stop, Talk};

/// A call by its name, its descriptor, and the call, which answers EAGAIN after a while.
pub(crate) type Call<'f, F> = (&'static str, BorrowedFd<'f>, F);

/// Announces the buffer, puts all of it in by pieces of at most `piece` bytes, waits for the answer.
pub(crate) fn push(
    bytes: &[u8],
    piece: usize,
    talk: &mut Talk,
    (call, fd, mut put): Call<'_, impl FnMut(&[u8]) -> Result<usize, Errno>>,
) -> Result<(), Stop> {
    talk.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match put(&rest[..rest.len().min(piece)]) {
            Ok(0) => return Err(Stop::refused(call, Errno::INVAL)),
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => talk.wanted()?,
            Err(Errno::AGAIN) => match talk.check() {
                Ok(()) => talk.await_ready(fd, PollFlags::OUT)?,
                Err(Stop::Died) => return Err(deserted(talk)),
                Err(stop) => return Err(stop),
            },
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(deserted(talk)),
            Err(errno) => return Err(Stop::refused(call, errno)),
        }
    }
    talk.expect(Say::Done).map(drop)
}

/// The receiver closed its end: it is gone, or it refused and says so.
pub(crate) fn deserted(talk: &mut Talk) -> Stop {
    match talk.expect(Say::Done) {
        Err(stop) => stop,
        Ok(_) => Stop::Corrupt("done before the end".to_owned()),
    }
}

/// Takes as many bytes as fill `into`.
pub(crate) fn pull(
    into: &mut [u8],
    piece: usize,
    talk: &Talk,
    (call, fd, mut get): Call<'_, impl FnMut(&mut [u8]) -> Result<usize, Errno>>,
) -> Result<(), Broken> {
    let (mut filled, mut ended) = (0, None);
    while filled < into.len() {
        let most = piece.min(into.len() - filled);
        let answer = get(&mut into[filled..filled + most]);
        let broken = |stop| Broken { delivered: filled as u64, stop };
        match (answer, ended.take()) {
            (Ok(0) | Err(Errno::CONNRESET), _) => return Err(broken(Stop::Died)),
            (Ok(count), _) => filled += count,
            (Err(Errno::INTR), _) => talk.wanted().map_err(broken)?,
            (Err(Errno::AGAIN), Some(stop)) => return Err(broken(stop)),
            (Err(Errno::AGAIN), None) => match talk.check() {
                Ok(()) => talk.await_ready(fd, PollFlags::IN).map_err(broken)?,
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
    talk: &Talk,
    call: Call<'_, impl FnMut(&mut [u8]) -> Result<usize, Errno>>,
) -> Result<(), Broken> {
    let pulled = pull(into, piece, talk, call).map_err(|broken| broken.stop);
    pulled.and_then(|()| talk.check_peer()).map_err(Broken::from)
}
