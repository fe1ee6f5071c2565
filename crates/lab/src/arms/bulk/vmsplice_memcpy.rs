//! A memcpy made of vmsplice. In one process, bytes enter a pipe by reference and leave it by a copy. It is slower than
//! any other copy here, and kept only to reproduce the experiment of the article of study 000
//! (`studies/000-memcpy-vmsplice.toml`).

use thalweg_sys::{
    Errno,
    pipe::{Pipe, SpliceMode, vmsplice, vmsplice_out},
};

/// Value of `PIPE_BUF` on Linux: the piece size in the article.
pub(super) const PIPE_BUF: usize = 4096;

/// Copies `src` to `dst` in pieces of at most `piece` bytes, through a pipe that is created and closed
/// in the call, as in the article.
///
/// Returns EINVAL for slices of different lengths or a `piece` of 0; otherwise the errno of the failed
/// call.
pub(super) fn vmsplice_memcpy(dst: &mut [u8], src: &[u8], piece: usize) -> Result<(), Errno> {
    if dst.len() != src.len() || piece == 0 {
        return Err(Errno::INVAL);
    }
    // The pipe is as large as a piece if the kernel allows it. No call may block: if bytes do not fit, the only reader
    // that could make room is this thread.
    let pipe = Pipe::new(if piece > PIPE_BUF { piece } else { 0 })?;
    let mut done = 0;
    while done < src.len() {
        let end = src.len().min(done + piece);
        let sent = vmsplice(&pipe.writer, &src[done..end], SpliceMode::NonBlock)?;
        if sent == 0 {
            return Err(Errno::IO);
        }
        let mut left = sent;
        while left > 0 {
            let into = &mut dst[done..done + left];
            match vmsplice_out(&pipe.reader, into, SpliceMode::NonBlock)? {
                0 => return Err(Errno::IO),
                count => (done, left) = (done + count, left - count),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_copies_any_length_from_any_place_in_any_pieces() {
        let src: Vec<u8> = (0..200_003_u32).map(|n| (n % 251) as u8).collect();
        for piece in [1000, PIPE_BUF, 64 << 10, 1 << 20] {
            for (at, len) in [(0, 0), (0, 1), (1, 4096), (3, 4097), (5, 199_998)] {
                let mut dst = vec![0; len];
                match vmsplice_memcpy(&mut dst, &src[at..at + len], piece) {
                    Ok(()) => assert_eq!(dst, &src[at..at + len], "{piece} {at} {len}"),
                    Err(errno) => {
                        assert!(matches!(errno, Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP));
                    }
                }
            }
        }
        assert_eq!(vmsplice_memcpy(&mut [0], b"xy", 1), Err(Errno::INVAL));
        assert_eq!(vmsplice_memcpy(&mut [0], b"x", 0), Err(Errno::INVAL));
    }
}
