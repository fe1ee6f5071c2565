//! Files that fit one buffer: one read and one write, and no question that could be left out.

use std::os::fd::OwnedFd;
use thalweg_core::{Tuning, mechanisms::LAST_RESORT};
use thalweg_sys::{Errno, copy::copy_file_range, io};

use crate::{
    copy::{
        contents::{contest::IN_KERNEL, whole_file::Contents},
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink, at_source},
};

/// The largest file that is read whole into the buffer each worker has; larger ones are planned.
pub(crate) const SINGLE: usize = 256 << 10;

impl Worker<'_> {
    /// Makes sure that the buffer is there: most workers of a small run never need one.
    pub fn make_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; SINGLE + 1];
        }
    }

    /// Reads a file that says it has `told` bytes. If it has more than the buffer holds, it is not
    /// small whatever it says, and what was read is the beginning of it.
    pub fn read_single(&mut self, source: &OwnedFd, told: usize) -> Attempt<Contents> {
        self.make_room();
        let room = self.buffer.len();
        // A size of 0 often is no size at all (/proc): then ask for all there is room for.
        let mut ask = if told == 0 { room } else { told + 1 };
        let mut len = 0;
        loop {
            let end = ask.min(room);
            let Some(into) = self.buffer.get_mut(len..end) else { break };
            match io::read(source, into) {
                Ok(0) => return Ok(Contents { len, is_whole: true }),
                Ok(got) => len += got,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(at_source("read")(errno)),
            }
            if len == told && told != 0 {
                return Ok(Contents { len, is_whole: true });
            }
            if len == room {
                break;
            }
            if len >= ask {
                ask = room;
            }
        }
        Ok(Contents { len, is_whole: false })
    }

    /// Writes the first `len` bytes of the buffer to a new file.
    pub fn write_single(&mut self, sink: &OwnedFd, len: usize) -> Attempt<()> {
        let mut rest = self.buffer.get(..len).unwrap_or_default();
        while !rest.is_empty() {
            let done = (len - rest.len()) as u64;
            match io::write(sink, rest) {
                Ok(0) => return Err(Failure::Sink("write", Errno::IO, done)),
                Ok(put) => rest = rest.get(put..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Failure::Sink("write", errno, done)),
            }
        }
        self.tally.book(LAST_RESORT.info().name, &Tuning::default(), len as u64);
        self.moved(len as u64);
        Ok(())
    }

    /// Has the kernel copy the whole of a small file. If it will not, or stops short, the plain way
    /// does it again from the start and finds the true reason.
    pub fn copy_single(&mut self, source: &OwnedFd, sink: &OwnedFd, len: usize) -> Attempt<()> {
        // One byte more than the size, so that the end is seen.
        match copy_file_range(source, Some(0), sink, Some(0), len + 1) {
            Ok(moved) if moved == len => {
                self.tally.book(IN_KERNEL, &Tuning::default(), len as u64);
                self.moved(len as u64);
                return Ok(());
            }
            Err(Errno::INTR) => {}
            _ => self.contests.refused(),
        }
        let contents = self.read_single(source, len)?;
        self.write_single(sink, contents.len)?;
        if contents.is_whole {
            return io::ftruncate(sink, contents.len as u64).map_err(at_sink("ftruncate"));
        }
        // It has grown beyond the buffer meanwhile.
        loop {
            self.make_room();
            match io::read(source, &mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(got) => self.write_single(sink, got)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(at_source("read")(errno)),
            }
        }
    }
}
