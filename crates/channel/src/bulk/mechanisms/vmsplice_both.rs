//! vmsplice into a pipe, and vmsplice out of it. The sender's pages enter the pipe by reference,
//! and the kernel copies them out to the receiver. The article of study 000
//! (`studies/000-memcpy-vmsplice.toml`) calls the second step a mapping. With pieces of 4 KiB and
//! the default pipe, this mechanism equals the article's program.

use rustix::fd::OwnedFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Nature, Role, Tuning, Unfit};
use thalweg_sys::pipe::{Pipe, SpliceMode, vmsplice, vmsplice_out};

use super::pipe;
use crate::bulk::stream::{StreamMechanism, StreamSource};
use crate::shared::stop::unfit;

static INFO: Info = Info {
    name: "vmsplice-both",
    summary: "vmsplice pages of the source into a pipe, and vmsplice them out of it",
    calls: &["vmsplice"],
    // The copy is stable although the pipe contains the sender's own pages: the receiver confirms a
    // buffer only after it has copied it.
    pairs: BETWEEN_PROCESSES,
    knobs: pipe::KNOBS,
    role: Role::OnRequest("--method, because it exists for studies"),
    nature: Nature::PLAIN,
};

/// Moves bytes with `vmsplice` at both ends of a pipe.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: made,
    take: taken,
    write: |fd, part| vmsplice(fd, part, SpliceMode::NonBlock),
    shares_pages: true,
};

fn probe() -> Result<(), Unfit> {
    let pipe = Pipe::new(0).map_err(|errno| unfit("pipe2", errno))?;
    let mode = SpliceMode::NonBlock;
    vmsplice(&pipe.writer, b"x", mode).map_err(|errno| unfit("vmsplice", errno))?;
    let mut byte = [0];
    vmsplice_out(&pipe.reader, &mut byte, mode).map_err(|errno| unfit("vmsplice", errno))?;
    if byte == *b"x" { Ok(()) } else { Err(Unfit::because("vmsplice returned wrong bytes")) }
}

/// Creates a pipe, if the system calls work here.
fn made(tuning: &Tuning) -> Result<(OwnedFd, OwnedFd), Unfit> {
    probe()?;
    pipe::made(&INFO, tuning)
}

fn taken(fd: OwnedFd) -> Result<StreamSource, Unfit> {
    probe()?;
    let fd = pipe::checked(fd)?;
    // SPLICE_F_NONBLOCK is enough: vmsplice ignores O_NONBLOCK.
    Ok(StreamSource { fd, read: |fd, part| vmsplice_out(fd, part, SpliceMode::NonBlock) })
}
