//! A byte stream that exists already: standard input and output, or a socket pair to a command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{FileType, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat},
    io::fcntl_dupfd_cloexec,
    stdio,
};
use thalweg_core::Kind;
use thalweg_sys::{Errno, net};

use crate::{
    compression::{CompressedStream, frames::CompressionFailure},
    plans::KnownEnd,
};

/// Query with which a client reports its exit status as its last request over a stream: `?ended=0`.
pub const ENDED: &str = "ended=";

/// A stream to one peer. Its descriptors are non-blocking.
#[derive(Debug)]
pub struct ByteStream {
    /// The socket, or the descriptor to read from.
    input: OwnedFd,
    /// The descriptor to write to, unless `input` is a socket for both directions.
    output: Option<OwnedFd>,
    /// The threads between this stream and the peer, if the stream is compressed.
    compressed: Option<CompressedStream>,
}

/// Restores the flags of standard input and output when it is dropped: other processes may share them.
#[derive(Debug)]
pub struct RestoredFlags(Vec<(OwnedFd, OFlags)>);

impl ByteStream {
    /// Returns standard input and output as one stream.
    pub fn standard() -> Result<(Self, RestoredFlags), Errno> {
        let input = fcntl_dupfd_cloexec(stdio::stdin(), 3)?;
        let output = fcntl_dupfd_cloexec(stdio::stdout(), 3)?;
        let mut restored = RestoredFlags(Vec::new());
        for fd in [&input, &output] {
            let flags = fcntl_getfl(fd)?;
            restored.0.push((fd.try_clone().map_err(|_| Errno::MFILE)?, flags));
            fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        let is_one = is_one_socket(&fstat(&input)?, &fstat(&output)?);
        let output = (!is_one).then_some(output);
        Ok((Self { input, output, compressed: None }, restored))
    }

    /// Returns the stream that consists of two descriptors of another process. Both must be non-blocking.
    pub fn passed(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input, output: Some(output), compressed: None }
    }

    /// Creates a socket pair: a stream, and the socket for the other process, which is blocking.
    pub fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (near, far) = net::unix_pair(false)?;
        fcntl_setfl(&near, fcntl_getfl(&near)? | OFlags::NONBLOCK)?;
        Ok((Self { input: near, output: None, compressed: None }, far))
    }

    /// Compresses the stream. The peer must compress it too.
    pub fn compress(self) -> Result<Self, Errno> {
        let (near, far) = Self::pair()?;
        let sink = known_end(self.output());
        let (output, input) = self.into_parts();
        let compressed = Some(CompressedStream::start(output, input, sink, far)?);
        Ok(Self { compressed, ..near })
    }

    /// Returns the threads that compress the stream.
    pub fn compressed(&self) -> Option<&CompressedStream> {
        self.compressed.as_ref()
    }

    /// Returns the reason if the compressed stream ended early.
    pub fn failure(&self) -> Option<CompressionFailure> {
        self.compressed.as_ref()?.failure()
    }

    /// Returns the descriptor to read from.
    pub fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Returns the descriptor to write to.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_ref().map_or(self.input.as_fd(), AsFd::as_fd)
    }

    /// Returns the descriptor to write to, and the one to read from if that is another one.
    pub fn into_parts(self) -> (OwnedFd, Option<OwnedFd>) {
        match self.output {
            Some(output) => (output, Some(self.input)),
            None => (self.input, None),
        }
    }
}

impl Drop for RestoredFlags {
    fn drop(&mut self) {
        for (fd, flags) in self.0.drain(..) {
            // The call sets flags that the descriptor had before, so it is not expected to fail.
            let _ = fcntl_setfl(fd, flags);
        }
    }
}

/// Returns the properties of an end of a stream that the planner needs.
pub fn known_end(fd: BorrowedFd<'_>) -> KnownEnd {
    match thalweg_core::End::of(fd).map(|end| end.kind) {
        Ok(Kind::Socket) => KnownEnd::Socket { is_internet: false },
        Ok(kind) => KnownEnd::Standard(kind),
        Err(_) => KnownEnd::Standard(Kind::Device),
    }
}

fn is_one_socket(one: &Stat, other: &Stat) -> bool {
    let is_socket = FileType::from_raw_mode(one.st_mode) == FileType::Socket;
    is_socket && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
