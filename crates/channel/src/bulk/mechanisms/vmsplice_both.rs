//! vmsplice into a pipe and vmsplice out of it. The sender's pages enter the pipe by reference. The
//! kernel copies them out. The article of study 000 (`studies/000-memcpy-vmsplice.toml`) calls that
//! step a mapping. With pieces of 4 KiB and the default pipe, this mechanism is the article's
//! program.

use rustix::fd::OwnedFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Nature, Role, Tuning, Unfit};
use thalweg_sys::pipe::{Pipe, SpliceMode, vmsplice, vmsplice_out};

use super::pipe;
use crate::bulk::stream::StreamMechanism;
use crate::shared::stop::unfit;

static INFO: Info = Info {
    name: "vmsplice-both",
    summary: "vmsplice pages of the source into a pipe, and vmsplice them out of it",
    calls: &["vmsplice"],
    // The pipe contains the sender's own pages. The receiver confirms their arrival only after it
    // has copied them.
    pairs: BETWEEN_PROCESSES,
    knobs: pipe::KNOBS,
    role: Role::OnRequest("--method, because it exists for studies"),
    nature: Nature::PLAIN,
};

/// `vmsplice` on both ends.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: made,
    take: taken,
    write: |fd, part| vmsplice(fd, part, SpliceMode::NonBlock),
    read: |fd, part| vmsplice_out(fd, part, SpliceMode::NonBlock),
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

/// Creates a pipe if the calls work here.
fn made(tuning: &Tuning) -> Result<(OwnedFd, OwnedFd), Unfit> {
    probe()?;
    pipe::made(&INFO, tuning)
}

fn taken(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    probe()?;
    pipe::taken(fd)
}
