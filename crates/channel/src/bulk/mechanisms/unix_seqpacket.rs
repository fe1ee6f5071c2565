//! A Unix SEQPACKET socket: each piece arrives as one packet, or not at all.

use rustix::fd::{BorrowedFd, OwnedFd};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Unfit, Unit};
use thalweg_sys::{Errno, net};

use super::unix_stream;
use crate::bulk::stream::{StreamMechanism, StreamSource};
use crate::shared::stop::unfit;

static INFO: Info = Info {
    name: "unix-seqpacket",
    summary: "send packets through a unix socket",
    calls: &["send", "recv"],
    pairs: BETWEEN_PROCESSES,
    knobs: &[
        unix_stream::SEND_BUFFER,
        Knob {
            name: "piece",
            summary: "bytes of a packet",
            unit: Unit::Bytes,
            values: &[64 << 10, 4096],
        },
    ],
    role: Role::OnRequest("--method, because it exists for studies"),
    nature: Nature::PLAIN,
};

/// Moves bytes with `send` and `recv` of packets.
pub static MECHANISM: StreamMechanism = StreamMechanism {
    info: &INFO,
    probe,
    make: |tuning| unix_stream::made(&INFO, tuning, true),
    take: taken,
    write: |fd, part| net::send(fd, part),
    shares_pages: false,
};

fn probe() -> Result<(), Unfit> {
    let (near, far) = net::unix_pair(true).map_err(|errno| unfit("socketpair", errno))?;
    net::send(&near, b"x").map_err(|errno| unfit("send", errno))?;
    net::recv_now(&far, &mut [0]).map(drop).map_err(|errno| unfit("recv", errno))
}

fn taken(fd: OwnedFd) -> Result<StreamSource, Unfit> {
    Ok(StreamSource { fd: unix_stream::checked(fd)?, read: recv_whole })
}

/// Receives exactly one packet. Both sides must split the buffer at the same positions, because the kernel silently
/// truncates a packet that does not fit. A short packet is an error, because it would leave a gap.
fn recv_whole(fd: BorrowedFd<'_>, part: &mut [u8]) -> Result<usize, Errno> {
    match net::recv_now(fd, part) {
        Ok(count) if count > 0 && count < part.len() => Err(Errno::BADMSG),
        answer => answer,
    }
}
