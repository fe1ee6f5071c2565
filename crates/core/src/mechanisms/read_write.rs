//! Plain read and write through one buffer: two copies and two calls per buffer. It serves every
//! pair and gives every guarantee, so it is the reference of the tests and the last resort of the
//! driver.

use std::sync::LazyLock;
use thalweg_sys::{Errno, buffer::Buffer};

use crate::{
    End, Error, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side, Sink,
    Source, Transfer, Tuning, Unit, advance_by_steps, buffer_pool,
    buffers::{Amount, sizes},
    pipe_buffer::chunk,
};

/// Size of the first buffer for a file that reports a smaller size, in bytes. It is small, because the allocator writes
/// zeros to every page of such a buffer immediately, which takes a page fault per page.
const FIRST: usize = 8 << 10;

/// Calls `read` into a buffer and `write` from it.
pub struct ReadWrite;

static INFO: LazyLock<Info> = LazyLock::new(|| Info {
    name: "read-write",
    summary: "read into a buffer and write from it; works everywhere",
    calls: &["read", "write"],
    pairs: &const { all_pairs() },
    knobs: &*KNOBS,
    role: Role::Mover,
    nature: Nature::PLAIN,
});

static KNOBS: LazyLock<[Knob; 1]> = LazyLock::new(|| {
    [Knob {
        name: "buffer",
        summary: "bytes per read and per write",
        unit: Unit::Bytes,
        values: sizes(&[256 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20]),
    }]
});

const fn all_pairs() -> [Pair; 36] {
    let kinds = Kind::ALL;
    let mut pairs = [Pair::new(Kind::Memory, Kind::Memory, Guarantees::COPIED); 36];
    let mut n = 0;
    while n < pairs.len() {
        pairs[n].source = kinds[n / kinds.len()];
        pairs[n].sink = kinds[n % kinds.len()];
        n += 1;
    }
    pairs
}

struct ReadWriteMover<'a> {
    source: Source<'a>,
    sink: Sink<'a>,
    buffer: Buffer,
    // Length to which the buffer grows if the source turns out to be longer than it reported.
    wished: usize,
    // Number of reads that filled the buffer.
    full_reads: u32,
    // buffer[sent..filled] was read and not written yet.
    filled: usize,
    sent: usize,
    // `true` after a read returned 0. Without this, the driver's next step would read the end again.
    has_ended: bool,
}

impl Drop for ReadWriteMover<'_> {
    fn drop(&mut self) {
        buffer_pool::give_buffer(std::mem::take(&mut self.buffer));
    }
}

impl Mechanism for ReadWrite {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        // A memory endpoint needs no buffer.
        let both_fds = matches!((&t.source, &t.sink), (Source::Fd(_), Sink::Fd(_)));
        let wished = INFO.bytes(tuning, "buffer");
        let size = || Amount::of(&t).fits(wished, FIRST);
        let buffer = if both_fds { buffer_pool::buffer(size()) } else { Buffer::default() };
        let (source, sink) = (t.source, t.sink);
        Ok(Box::new(ReadWriteMover {
            source,
            sink,
            buffer,
            wished,
            full_reads: 0,
            filled: 0,
            sent: 0,
            has_ended: false,
        }))
    }
}

impl Mover for ReadWriteMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(chunk(most)))
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn in_flight(&self) -> u64 {
        (self.filled - self.sent) as u64
    }

    fn drain(&mut self) -> Result<u64, Error> {
        let mut drained = 0;
        while self.sent < self.filled {
            drained += self.flush().map_err(|e| Error { moved: drained, ..e })?;
        }
        Ok(drained)
    }
}

impl ReadWriteMover<'_> {
    fn step(&mut self, most: usize) -> Result<u64, Error> {
        match (&mut self.source, &mut self.sink) {
            (Source::Memory(from), Sink::Memory(to)) => {
                let count = most.min(from.len()).min(to.len());
                let (head, rest) = std::mem::take(to).split_at_mut(count);
                // Uses the kernel that was measured best for this size, if the process has
                // installed bands.
                thalweg_kernels::copy(head, &from[..count]);
                (*from, *to) = (&from[count..], rest);
                Ok(count as u64)
            }
            (Source::Memory(from), Sink::Fd(end)) => {
                let count = most.min(from.len()).min(isize::MAX as usize);
                if count == 0 {
                    return Ok(0);
                }
                let put = write(end, &from[..count])?;
                *from = &from[put..];
                Ok(put as u64)
            }
            (Source::Fd(end), Sink::Memory(to)) => {
                let count = most.min(to.len());
                let got = end.read(&mut to[..count]);
                let got = got.map_err(|e| INFO.error(end.read_call(), Side::Source, e, 0))?;
                *to = &mut std::mem::take(to)[got..];
                Ok(got as u64)
            }
            (Source::Fd(end), Sink::Fd(_)) => {
                if self.sent == self.filled && !self.has_ended {
                    // The buffer grows only after the second full read, because the first may have read the whole file.
                    if self.full_reads > 1 && self.buffer.len() < self.wished {
                        self.buffer = buffer_pool::buffer(self.wished);
                    }
                    let count = most.min(self.buffer.len());
                    let got = end.read(&mut self.buffer[..count]);
                    let got = got.map_err(|e| INFO.error(end.read_call(), Side::Source, e, 0))?;
                    let is_full = got == self.buffer.len();
                    self.full_reads = self.full_reads.saturating_add(is_full.into());
                    (self.sent, self.filled, self.has_ended) = (0, got, got == 0);
                }
                if self.has_ended { Ok(0) } else { self.flush() }
            }
        }
    }

    fn flush(&mut self) -> Result<u64, Error> {
        let Sink::Fd(end) = &mut self.sink else { return Ok(0) };
        let put = write(end, &self.buffer[self.sent..self.filled])?;
        self.sent += put;
        Ok(put as u64)
    }
}

/// Writes some of the bytes. Returns an error if the call wrote none, because 0 would mean the end of the source.
fn write(end: &mut End<'_>, bytes: &[u8]) -> Result<usize, Error> {
    let call = end.write_call();
    match end.write(bytes) {
        Ok(0) => Err(INFO.error(call, Side::Sink, Errno::IO, 0)),
        answer => answer.map_err(|e| INFO.error(call, Side::Sink, e, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Plan};
    use std::{fs::File, io::Write};
    use thalweg_sys::tally;

    #[test]
    fn without_a_plan_a_file_is_read_written_and_its_end_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap().write_all(b"ten bytes.").unwrap();
        let (source, sink) = (File::open(&path).unwrap(), tempfile::tempfile().unwrap());
        let mut transfer = Transfer::between(&source, &sink).unwrap();
        let before = tally::calls();
        let outcome = Driver::default().run_untimed(&mut transfer, &Plan::default(), &mut ());
        assert_eq!(outcome.into_result().unwrap().bytes, 10);
        assert_eq!(tally::calls() - before, 3);
    }
}
