//! A plain Unix stream socket: the kernel copies twice. Works wherever the two processes can connect.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use thalweg_core::cadence::CANCEL_CHECK;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{io, net};

use crate::bulk::stream::StreamMechanism;
use crate::shared::stop::unfit;

pub(super) const SEND_BUFFER: Knob = Knob {
    name: "sndbuf",
    summary: "requested send buffer of the socket, 0 for the kernel's default",
    unit: Unit::Bytes,
    values: &[4 << 20, 0],
};

static INFO: Info = Info {
    name: "unix-stream",
    summary: "send through a unix stream socket and read from it",
    calls: &["send", "read"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        SEND_BUFFER,
        Knob {
            name: "piece",
            summary: "maximum bytes per call",
            unit: Unit::Bytes,
            values: &[1 << 20, 64 << 10],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

/// Moves bytes with `send` and `read` through a Unix stream socket.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: |tuning| made(&INFO, tuning, false),
    take: taken,
    write: |fd, part| net::send(fd, part),
    read: |fd, part| io::read(fd, part),
    shares_pages: false,
};

fn probe() -> Result<(), Unfit> {
    let (near, far) = net::unix_pair(false).map_err(|errno| unfit("socketpair", errno))?;
    net::send(&near, b"x").map_err(|errno| unfit("send", errno))?;
    io::read(&far, &mut [0]).map(drop).map_err(|errno| unfit("read", errno))
}

/// Creates a socket pair with the send buffer size that the tuning requests.
pub(super) fn pair(
    info: &Info,
    tuning: &Tuning,
    packets: bool,
) -> Result<(OwnedFd, OwnedFd), Unfit> {
    let (near, far) = net::unix_pair(packets).map_err(|errno| unfit("socketpair", errno))?;
    if let Some(wished) = info.length(tuning, "sndbuf") {
        net::set_send_buffer(&near, wished).map_err(|errno| unfit("SO_SNDBUF", errno))?;
    }
    Ok((near, far))
}

/// Creates a socket pair. Returns the end to keep, with a timeout for each call, and the end for the peer.
pub(super) fn made(
    info: &Info,
    tuning: &Tuning,
    packets: bool,
) -> Result<(OwnedFd, OwnedFd), Unfit> {
    let (near, far) = pair(info, tuning, packets)?;
    Ok((waiting_a_while(near, Timeout::Send)?, far))
}

pub(super) fn taken(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    waiting_a_while(fd, Timeout::Recv)
}

/// Sets a timeout. Calls then block in the kernel, from where a process wakes up fastest, but at most for
/// [`CANCEL_CHECK`]. After that they return EAGAIN.
fn waiting_a_while(socket: OwnedFd, way: Timeout) -> Result<OwnedFd, Unfit> {
    let set = set_socket_timeout(&socket, way, Some(CANCEL_CHECK));
    set.map(|()| socket).map_err(|errno| unfit("SO_SNDTIMEO, SO_RCVTIMEO", errno))
}
