//! A plain Unix stream socket: the kernel copies twice. Works wherever the two processes can connect.

use rustix::fd::OwnedFd;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use thalweg_core::cadence::CANCEL_CHECK;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::net;

use crate::bulk::stream::{StreamMechanism, StreamSource};
use crate::shared::stop::unfit;

pub(super) const SEND_BUFFER: Knob = Knob {
    name: "sndbuf",
    summary: "requested send buffer of the socket, 0 for the kernel's default",
    unit: Unit::Bytes,
    values: &[4 << 20, 0],
};

static INFO: Info = Info {
    name: "unix-stream",
    summary: "send through a unix stream socket and receive from it",
    calls: &["send", "recv"],
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

/// Moves bytes with `send` and `recv` through a Unix stream socket.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: |tuning| made(&INFO, tuning, false),
    take: taken,
    write: |fd, part| net::send(fd, part),
    shares_pages: false,
};

fn probe() -> Result<(), Unfit> {
    let (near, far) = net::unix_pair(false).map_err(|errno| unfit("socketpair", errno))?;
    net::send(&near, b"x").map_err(|errno| unfit("send", errno))?;
    net::recv_now(&far, &mut [0]).map(drop).map_err(|errno| unfit("recv", errno))
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
    // Calls then block in the kernel, from where a process wakes up fastest, but at most for `CANCEL_CHECK`. After that
    // they return EAGAIN.
    set_socket_timeout(&near, Timeout::Send, Some(CANCEL_CHECK))
        .map_err(|errno| unfit("SO_SNDTIMEO", errno))?;
    Ok((near, far))
}

/// Checks that the peer sent a Unix socket. Sockets of other families may block despite MSG_DONTWAIT.
pub(super) fn checked(fd: OwnedFd) -> Result<OwnedFd, Unfit> {
    match socket_domain(&fd).map_err(|errno| unfit("SO_DOMAIN", errno))? {
        AddressFamily::UNIX => Ok(fd),
        _ => Err(Unfit::because("the peer passed a socket that is not a Unix socket")),
    }
}

fn taken(fd: OwnedFd) -> Result<StreamSource, Unfit> {
    Ok(StreamSource { fd: checked(fd)?, read: |fd, part| net::recv_now(fd, part) })
}
