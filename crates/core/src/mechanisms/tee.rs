//! tee duplicates the contents of one pipe into another, and splice then removes them from the
//! first. This takes two calls per filling of the pipe, and no copy. It pays off only if another
//! process also reads the data. The mechanism exists to be measured.

use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;
use thalweg_sys::{
    Errno,
    buffer::Buffer,
    io,
    pipe::{self, SpliceMode},
};

use crate::{
    End, Error, Guarantees, Info, Kind, Mechanism, Mover, Nature, Pair, Role, Side, Transfer,
    Tuning, advance_by_steps, pipe_buffer::chunk,
};

/// Calls `tee`, then `splice` to `/dev/null`.
pub struct Tee;

pub(crate) static INFO: Info = Info {
    name: "tee",
    summary: "duplicate the data of one pipe into another, then consume it",
    calls: &["tee", "splice"],
    // No process can write to pages that are in a pipe.
    pairs: &[Pair::new(Kind::Pipe, Kind::Pipe, Guarantees::COPIED)],
    knobs: &[],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct TeeMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    nowhere: OwnedFd,
    // Bytes that are in the sink and still in the source, where tee would duplicate them again.
    // They count as moved once they are removed, so that the source's position matches the count.
    shown: u64,
}

impl Mechanism for Tee {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn open<'a>(&self, t: Transfer<'a>, _: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let nowhere = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let nowhere = nowhere.map_err(|e| INFO.error("open", Side::Own, e, 0))?;
        Ok(Box::new(TeeMover { source, sink, nowhere, shown: 0 }))
    }
}

impl Mover for TeeMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }

    fn in_flight(&self) -> u64 {
        self.shown
    }

    /// Removes from the source, by plain read, the bytes that the sink already has.
    fn drain(&mut self) -> Result<u64, Error> {
        let mut buffer = Buffer::new(chunk(self.shown.min(64 << 10)));
        let mut taken = 0;
        while self.shown > 0 {
            let most = buffer.len().min(chunk(self.shown));
            let got = io::read(self.source.fd, &mut buffer[..most]);
            let got = got.map_err(|e| INFO.error("read", Side::Source, e, taken))? as u64;
            if got == 0 {
                break;
            }
            self.shown -= got;
            taken += got;
        }
        Ok(taken)
    }
}

impl TeeMover<'_> {
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        if self.shown == 0 {
            let shown = pipe::tee(self.source.fd, self.sink.fd, chunk(most), SpliceMode::Block);
            let shown = shown.map_err(|e| INFO.error("tee", Side::Either, e, 0))?;
            self.shown = shown as u64;
        }
        let mut taken = 0;
        // If the loop returned early, bytes would remain both in the source and in the sink.
        while self.shown > 0 {
            match self.take() {
                Ok(0) => return Err(INFO.error("splice", Side::Source, Errno::INVAL, taken)),
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(INFO.error("splice", Side::Source, errno, taken)),
            }
        }
        Ok(taken)
    }

    fn take(&mut self) -> Result<u64, Errno> {
        let (from, len) = (self.source.fd, chunk(self.shown));
        let count = pipe::splice(from, None, &self.nowhere, None, len, SpliceMode::NonBlock)?;
        self.shown -= count as u64;
        Ok(count as u64)
    }
}
