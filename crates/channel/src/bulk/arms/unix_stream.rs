//! A unix stream socket, as everybody writes it: two copies by the kernel. Works wherever the two
//! could meet at all.

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{io, net};

use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::control::{Control, Note};
use crate::bulk::stream;
use crate::shared::stop::{Stop, unfit};
use crate::shared::wait::ASK;

/// `send` and `read` through a unix stream.
pub struct UnixStream;

pub(super) const SEND_BUFFER: Knob = Knob {
    name: "sndbuf",
    summary: "bytes asked of the socket's send buffer, 0 for the kernel's default",
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
            summary: "most bytes of one call",
            unit: Unit::Bytes,
            values: &[1 << 20, 64 << 10],
        },
    ],
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct Sender(OwnedFd, usize);

struct Receiver(OwnedFd, usize);

/// A socket for an arm: the end to keep, and the end to hand over.
pub(super) fn made(
    info: &Info,
    tuning: &Tuning,
    packets: bool,
) -> Result<(OwnedFd, Parcel), Unfit> {
    let (near, far) = net::unix_pair(packets).map_err(|errno| unfit("socketpair", errno))?;
    if let Some(wished) = info.length(tuning, "sndbuf") {
        net::set_send_buffer(&near, wished).map_err(|errno| unfit("SO_SNDBUF", errno))?;
    }
    Ok((near, Parcel::of(&[], vec![far])))
}

/// A call on it waits in the kernel, where it is woken soonest, but not for long: then it answers
/// EAGAIN.
pub(super) fn patient(socket: OwnedFd, way: Timeout) -> Result<OwnedFd, Unfit> {
    let set = set_socket_timeout(&socket, way, Some(ASK));
    set.map(|()| socket).map_err(|errno| unfit("SO_SNDTIMEO, SO_RCVTIMEO", errno))
}

impl Arm for UnixStream {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let (near, far) = net::unix_pair(false).map_err(|errno| unfit("socketpair", errno))?;
        net::send(&near, b"x").map_err(|errno| unfit("send", errno))?;
        io::read(&far, &mut [0]).map(drop).map_err(|errno| unfit("read", errno))
    }

    fn offer(&self, tuning: &Tuning, _: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        let (near, parcel) = made(&INFO, tuning, false)?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        Ok((Box::new(Sender(patient(near, Timeout::Send)?, piece)), parcel))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        _: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        let far = patient(parcel.fd()?, Timeout::Recv)?;
        Ok((Box::new(Receiver(far, piece)), Parcel::default()))
    }
}

impl Outgoing for Sender {
    fn send(&mut self, bytes: &[u8], control: &mut Control) -> Result<(), Stop> {
        let socket = self.0.as_fd();
        stream::push(
            bytes,
            self.1,
            control,
            ("send", socket, |part: &[u8]| net::send(socket, part)),
        )
    }
}

impl Incoming for Receiver {
    fn receive(&mut self, _: Note, into: &mut [u8], control: &mut Control) -> Result<(), Broken> {
        let socket = self.0.as_fd();
        let get = |part: &mut [u8]| io::read(socket, part);
        stream::pull(into, self.1, control, ("read", socket, get))
    }
}
