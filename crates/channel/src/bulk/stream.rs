//! What the arms through a pipe or a socket have in common: everything in, everything out, and what
//! an end that closes means.

use thalweg_sys::Errno;

use crate::bulk::arm::Broken;
use crate::bulk::talk::{Note, Say, Stop, Talk};

/// Announces the buffer, puts all of it in by pieces of at most `piece` bytes, waits for the answer.
pub(crate) fn push(
    bytes: &[u8],
    piece: usize,
    talk: &mut Talk,
    (call, mut put): (&'static str, impl FnMut(&[u8]) -> Result<usize, Errno>),
) -> Result<(), Stop> {
    talk.tell(Note::new(Say::Begin, &[bytes.len() as u64]))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match put(&rest[..rest.len().min(piece)]) {
            Ok(0) => return Err(Stop::refused(call, Errno::INVAL)),
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => talk.after_signal()?,
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
    (call, mut get): (&'static str, impl FnMut(&mut [u8]) -> Result<usize, Errno>),
) -> Result<(), Broken> {
    let mut filled = 0;
    while filled < into.len() {
        let most = piece.min(into.len() - filled);
        let stop = match get(&mut into[filled..filled + most]) {
            Ok(0) | Err(Errno::CONNRESET) => Stop::Died,
            Ok(count) => {
                filled += count;
                continue;
            }
            Err(Errno::INTR) => match talk.after_signal() {
                Ok(()) => continue,
                Err(stop) => stop,
            },
            Err(errno) => Stop::refused(call, errno),
        };
        return Err(Broken { delivered: filled as u64, stop });
    }
    Ok(())
}
