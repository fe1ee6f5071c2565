//! sendfile: the kernel passes a file's pages to the sink through an internal pipe. One call moves as much as the sink
//! accepts. Later writes to the file change pages that are still in a pipe or a socket.

use rustix::fs::{OFlags, SeekFrom, seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sys::copy;

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, advance_by_steps, pipe_buffer::chunk, reopen::reopen,
};

/// `sendfile` from a file or a seekable device.
pub struct Sendfile;

static INFO: Info = Info {
    name: "sendfile",
    summary: "let the kernel send a file's pages to the destination",
    calls: &["sendfile"],
    pairs: &[
        Pair::new(Kind::File, Kind::File, Guarantees::COPIED).likely(),
        // Page-cache pages stay shared with the file, so the reader sees later writes to it.
        Pair::new(Kind::File, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::File, Kind::Null, Guarantees::COPIED),
        Pair::new(Kind::Device, Kind::File, Guarantees::COPIED),
        // Pages stay shared with the page cache of the block device.
        Pair::new(Kind::Device, Kind::Pipe, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Socket, Guarantees::SHARED),
        Pair::new(Kind::Device, Kind::Null, Guarantees::COPIED),
    ],
    knobs: &[],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct SendfileMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    // sendfile accepts no offset for the sink. A sink that is addressed by offset is therefore reopened, so that it has
    // a file offset of its own.
    own: Option<OwnedFd>,
}

impl Mechanism for Sendfile {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because("sendfile fails with EINVAL on O_APPEND destinations"));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, _: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let own = sink.at.map(|_| reopen(&sink, OFlags::WRONLY));
        let own = own.transpose().map_err(|e| INFO.error("open", Side::Sink, e, 0))?;
        Ok(Box::new(SendfileMover { source, sink, own }))
    }
}

impl Mover for SendfileMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }
}

impl SendfileMover<'_> {
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        let mut out: BorrowedFd<'_> = self.sink.fd;
        if let (Some(own), Some(at)) = (&self.own, self.sink.at) {
            // The offset is set before each call, so that it depends only on the counts that calls return.
            let sought = seek(own, SeekFrom::Start(at));
            sought.map_err(|e| INFO.error("lseek", Side::Sink, e, 0))?;
            out = own.as_fd();
        }
        let moved = copy::sendfile(out, self.source.fd, self.source.at, chunk(most));
        let moved = moved.map_err(|e| INFO.error("sendfile", Side::Either, e, 0))? as u64;
        self.source.forward(moved);
        self.sink.forward(moved);
        Ok(moved)
    }
}
