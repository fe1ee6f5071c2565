//! vmsplice into a pipe and vmsplice out of it. The sender's pages go in by reference; the way out
//! copies, though the article that made this known called it a mapping. With pieces of 4 KiB and the
//! default pipe it is the article's program.

use rustix::fd::{AsFd, OwnedFd};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::pipe::{Pipe, SpliceMode, vmsplice, vmsplice_out};

use super::pipe;
use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::control::{Control, Note};
use crate::bulk::stream;
use crate::shared::stop::{Stop, unfit};

/// `vmsplice` on both ends.
pub struct VmspliceBoth;

static INFO: Info = Info {
    name: "vmsplice-both",
    summary: "vmsplice the source's pages into a pipe and vmsplice them out of it",
    calls: &["vmsplice"],
    // The pipe holds the sender's own pages, but the receiver has copied them before the sender is
    // told that they arrived.
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        pipe::PIPE,
        Knob {
            name: "piece",
            summary: "most bytes of one call",
            unit: Unit::Bytes,
            values: &[1 << 20, 4096, 64 << 10],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct Sender(OwnedFd, usize);

struct Receiver(OwnedFd, usize);

impl Arm for VmspliceBoth {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let pipe = Pipe::new(0).map_err(|errno| unfit("pipe2", errno))?;
        let mode = SpliceMode::NonBlock;
        vmsplice(&pipe.writer, b"x", mode).map_err(|errno| unfit("vmsplice", errno))?;
        let mut byte = [0];
        vmsplice_out(&pipe.reader, &mut byte, mode).map_err(|errno| unfit("vmsplice", errno))?;
        if byte == *b"x" { Ok(()) } else { Err(Unfit::because("vmsplice gave other bytes")) }
    }

    fn offer(&self, tuning: &Tuning, _: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        self.probe()?;
        let (writer, parcel) = pipe::made(&INFO, tuning)?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(Sender(writer, piece)), parcel))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        _: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        self.probe()?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(Receiver(pipe::taken(&mut parcel)?, piece)), Parcel::default()))
    }
}

impl Outgoing for Sender {
    fn send(&mut self, bytes: &[u8], control: &mut Control) -> Result<(), Stop> {
        let writer = self.0.as_fd();
        let put = |part: &[u8]| vmsplice(writer, part, SpliceMode::NonBlock);
        stream::push(bytes, self.1, control, ("vmsplice", writer, put))
    }
}

impl Incoming for Receiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut Control) -> Result<(), Broken> {
        let reader = self.0.as_fd();
        let get = |part: &mut [u8]| vmsplice_out(reader, part, SpliceMode::NonBlock);
        stream::pull_pages(into, self.1, control, ("vmsplice", reader, get))
    }
}
