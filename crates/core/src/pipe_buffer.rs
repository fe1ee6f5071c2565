//! A pipe of the mechanism's own between two endpoints, with an exact count of the bytes in it.

use std::os::fd::{AsFd, BorrowedFd};
use thalweg_sys::{
    Errno, io,
    pipe::{self, Pipe, SpliceMode},
};

use crate::{End, Error, Info, Side, buffer_pool};

/// The longest length for one system call. The kernel truncates at `MAX_RW_COUNT` anyway.
const LONGEST: u64 = 0x7fff_f000;

/// Returns `len`, limited to what one system call can transfer.
pub fn chunk(len: u64) -> usize {
    len.min(LONGEST) as usize
}

/// A pipe through which pages pass without a copy, with a count of the bytes in it.
pub struct PipeBuffer {
    // `None` only during drop.
    pipe: Option<Pipe>,
    wished: usize,
    waiting: u64,
    // Bytes that `drain` has read from the pipe and not written yet. They still count as `waiting`.
    spill: Vec<u8>,
}

impl PipeBuffer {
    /// Creates a pipe of the requested capacity, or as much of it as the kernel grants.
    pub fn new(info: &Info, wished: usize) -> Result<Self, Error> {
        let pipe = match buffer_pool::pipe(wished) {
            Some(pipe) => pipe,
            None => Pipe::new(wished).map_err(|e| info.error("pipe2", Side::Own, e, 0))?,
        };
        Ok(Self { pipe: Some(pipe), wished, waiting: 0, spill: Vec::new() })
    }

    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("only drop takes the pipe")
    }

    /// Returns the number of bytes in the pipe.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the capacity that the kernel granted.
    pub fn capacity(&self) -> u64 {
        self.pipe().capacity() as u64
    }

    /// Returns the writing end, for a call other than splice. Report the bytes of that call to
    /// [`filled`](Self::filled).
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.pipe().writer.as_fd()
    }

    /// Counts bytes that another call has put into the pipe.
    pub fn filled(&mut self, count: u64) {
        self.waiting += count;
    }

    /// Splices once from `source` into the pipe, at most `most` bytes.
    pub fn fill(&mut self, source: &mut End<'_>, most: u64) -> Result<u64, Errno> {
        let len = chunk(most.min(self.capacity()));
        let writer = &self.pipe().writer;
        let got = pipe::splice(source.fd, source.at, writer, None, len, SpliceMode::Block)?;
        source.forward(got as u64);
        self.waiting += got as u64;
        Ok(got as u64)
    }

    /// Splices once from the pipe into `sink`.
    pub fn empty(&mut self, sink: &mut End<'_>) -> Result<u64, Errno> {
        let len = chunk(self.waiting);
        let reader = &self.pipe().reader;
        let put = pipe::splice(reader, None, sink.fd, sink.at, len, SpliceMode::Block)?;
        sink.forward(put as u64);
        self.waiting -= put as u64;
        Ok(put as u64)
    }

    /// Delivers all bytes in the pipe by plain read and write. If a write fails or moves nothing,
    /// the remaining bytes are kept for the next call.
    pub fn drain(&mut self, info: &Info, sink: &mut End<'_>) -> Result<u64, Error> {
        let mut drained = 0;
        while self.waiting > 0 {
            if self.spill.is_empty() {
                let mut buffer = vec![0; chunk(self.waiting.min(self.capacity()))];
                let got = io::read(&self.pipe().reader, &mut buffer);
                let got = got.map_err(|e| info.error("read", Side::Own, e, drained))?;
                if got == 0 {
                    break;
                }
                buffer.truncate(got);
                self.spill = buffer;
            }
            let put = sink.write(&self.spill);
            let put = put.map_err(|e| info.error(sink.write_call(), Side::Sink, e, drained))?;
            if put == 0 {
                break;
            }
            self.spill.drain(..put);
            self.waiting -= put as u64;
            drained += put as u64;
        }
        Ok(drained)
    }
}

impl Drop for PipeBuffer {
    fn drop(&mut self) {
        // A pipe that still contains bytes cannot be reused.
        if let Some(pipe) = self.pipe.take().filter(|_| self.waiting == 0) {
            buffer_pool::give_pipe(self.wished, pipe);
        }
    }
}
