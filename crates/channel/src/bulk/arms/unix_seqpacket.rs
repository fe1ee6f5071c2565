//! A unix socket that keeps packets apart: every piece arrives as one, or not at all.

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt::Timeout;
use thalweg_core::{BETWEEN_PROCESSES, Info, Knob, Nature, Role, Tuning, Unfit, Unit};
use thalweg_sys::{Errno, io, net};

use super::unix_stream;
use crate::bulk::arm::{Arm, Broken, Ends, Incoming, Outgoing, Parcel};
use crate::bulk::control::{Control, Note};
use crate::bulk::stream;
use crate::shared::stop::{Stop, unfit};

/// `send` and `read` of packets.
pub struct UnixSeqpacket;

static INFO: Info = Info {
    name: "unix-seqpacket",
    summary: "send packets through a unix socket",
    calls: &["send", "read"],
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
    role: Role::Mover,
    nature: Nature::PLAIN,
};

struct Sender(OwnedFd, usize);

struct Receiver(OwnedFd, usize);

impl Arm for UnixSeqpacket {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn probe(&self) -> Result<(), Unfit> {
        let (near, far) = net::unix_pair(true).map_err(|errno| unfit("socketpair", errno))?;
        net::send(&near, b"x").map_err(|errno| unfit("send", errno))?;
        io::read(&far, &mut [0]).map(drop).map_err(|errno| unfit("read", errno))
    }

    fn offer(&self, tuning: &Tuning, _: &Ends) -> Result<(Box<dyn Outgoing>, Parcel), Unfit> {
        let (near, parcel) = unix_stream::made(&INFO, tuning, true)?;
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        let near = unix_stream::patient(near, Timeout::Send)?;
        Ok((Box::new(Sender(near, piece)), parcel))
    }

    fn accept(
        &self,
        tuning: &Tuning,
        mut parcel: Parcel,
        _: &Ends,
    ) -> Result<(Box<dyn Incoming>, Parcel), Unfit> {
        let piece = INFO.length(tuning, "piece").unwrap_or(usize::MAX);
        let far = unix_stream::patient(parcel.fd()?, Timeout::Recv)?;
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
        // A packet that does not fit would be cut without a word, one that is short would leave a
        // gap: both sides cut the buffer at the same places.
        let get = |part: &mut [u8]| match io::read(socket, part) {
            Ok(count) if count > 0 && count < part.len() => Err(Errno::BADMSG),
            answer => answer,
        };
        stream::pull(into, self.1, control, ("read", socket, get))
    }
}
