//! vmsplice into a pipe and an ordinary read out of it: the kernel copies once, at the receiver.

use rustix::fd::OwnedFd;
use thalweg_core::{BETWEEN_PROCESSES, Info, Nature, Role, Tuning, Unfit};
use thalweg_sys::pipe::{Pipe, SpliceMode, vmsplice};

use super::pipe;
use crate::bulk::stream::StreamMechanism;
use crate::shared::stop::unfit;

static INFO: Info = Info {
    name: "vmsplice-read",
    summary: "vmsplice pages of the source into a pipe and read from it",
    calls: &["vmsplice", "read"],
    // As in `vmsplice-both`, the copy is stable, because the receiver confirms only after it has
    // copied.
    pairs: BETWEEN_PROCESSES,
    knobs: pipe::KNOBS,
    role: Role::OnRequest("--method, because it exists for studies"),
    nature: Nature::PLAIN,
};

/// Moves bytes with `vmsplice` into a pipe and `read` out of it.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: made,
    take: pipe::taken,
    write: |fd, part| vmsplice(fd, part, SpliceMode::NonBlock),
    shares_pages: true,
};

fn probe() -> Result<(), Unfit> {
    let pipe = Pipe::new(0).map_err(|errno| unfit("pipe2", errno))?;
    let answer = vmsplice(&pipe.writer, b"x", SpliceMode::NonBlock);
    answer.map(drop).map_err(|errno| unfit("vmsplice", errno))
}

/// Creates a pipe, if the system calls work here.
fn made(tuning: &Tuning) -> Result<(OwnedFd, OwnedFd), Unfit> {
    probe()?;
    pipe::made(&INFO, tuning)
}
