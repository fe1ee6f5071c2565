//! MSG_ZEROCOPY: the network card reads the sender's pages directly, and the kernel reports when it
//! no longer needs them. Each step waits for these reports. A step therefore ends when the peer has
//! acknowledged the data, and the memory may then be written again. Over loopback, the kernel
//! copies nevertheless, and reports this too.

use std::time::Instant;
use thalweg_sys::{Errno, io, map::Map, net::ZerocopySends};

use crate::{
    End, Error, Facts, Guarantees, Info, Kind, Knob, Mechanism, Mover, Nature, Pair, Role, Side,
    Sink, Source, Transfer, Tuning, Unfit, Unit, cadence::CANCEL_CHECK, pipe_buffer::chunk,
};

/// `send` without a copy, and its completion notifications.
pub struct MsgZerocopy;

static INFO: Info = Info {
    name: "msg-zerocopy",
    summary: "send pages of memory over TCP without copying them",
    calls: &["MSG_ZEROCOPY"],
    // COPIED, because bytes count as moved only after the kernel has released the pages.
    pairs: &[
        Pair::new(Kind::Memory, Kind::Socket, Guarantees::COPIED),
        Pair::new(Kind::File, Kind::Socket, Guarantees::COPIED),
    ],
    knobs: &[
        Knob {
            name: "buffer",
            summary: "maximum bytes of one send, and of one read from a file",
            unit: Unit::Bytes,
            values: &[1 << 20, 256 << 10, 4 << 20],
        },
        Knob {
            name: "depth",
            summary: "buffers for file data; they are reused after the peer has acknowledged all of them",
            unit: Unit::Count,
            values: &[4, 2, 8],
        },
    ],
    role: Role::Mover,
    nature: Nature {
        waits: Some("its calls block until the peer has acknowledged the data"),
        ..Nature::PLAIN
    },
};

struct MsgZerocopyMover<'a> {
    // `None` only during drop.
    sends: Option<ZerocopySends<'a>>,
    feed: Feed<'a>,
    sink: End<'a>,
    buffer: usize,
    // Bytes sent and not acknowledged. The kernel delivers them even if the transfer is aborted.
    pending: u64,
    calls: u64,
}

enum Feed<'a> {
    Memory(&'a [u8]),
    File(ZerocopyBuffers<'a>),
}

/// Buffers for the bytes of a file. They are filled again only after all outstanding sends are
/// complete.
struct ZerocopyBuffers<'a> {
    source: End<'a>,
    buffers: Vec<Map>,
    used: usize,
    // The range `[sent..filled]` of the last used buffer was read and not sent yet.
    filled: usize,
    sent: usize,
}

impl Mechanism for MsgZerocopy {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if !facts.sink.internet {
            return Err(Unfit::because(
                "MSG_ZEROCOPY works on internet sockets, but not on unix sockets",
            ));
        }
        Ok(())
    }

    fn open<'a>(&self, t: Transfer<'a>, tuning: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let buffer = INFO.bytes(tuning, "buffer");
        let Sink::Fd(sink) = t.sink else {
            return Err(INFO.error("open", Side::Sink, Errno::INVAL, 0));
        };
        let feed = match t.source {
            Source::Memory(bytes) => Feed::Memory(bytes),
            Source::Fd(source) => {
                let depth = INFO.knob(tuning, "depth").max(1);
                let buffers: Result<Vec<_>, _> =
                    (0..depth).map(|_| Map::anonymous(buffer, false)).collect();
                let buffers = buffers.map_err(|e| INFO.error("mmap", Side::Own, e, 0))?;
                Feed::File(ZerocopyBuffers { source, buffers, used: 0, filled: 0, sent: 0 })
            }
        };
        let sends = ZerocopySends::new(sink.fd);
        let sends = sends.map_err(|e| INFO.error("SO_ZEROCOPY", Side::Sink, e, 0))?;
        Ok(Box::new(MsgZerocopyMover {
            sends: Some(sends),
            feed,
            sink,
            buffer,
            pending: 0,
            calls: 0,
        }))
    }
}

impl Mover for MsgZerocopyMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        let (mut failure, began) = (None, Instant::now());
        while self.pending < budget && (self.pending == 0 || began.elapsed() < CANCEL_CHECK) {
            match self.send(chunk(budget - self.pending)) {
                Ok(0) => break,
                Ok(sent) => {
                    self.pending += sent as u64;
                    self.calls += 1;
                }
                // ENOBUFS: the outstanding sends use up the socket's option memory. Wait for them
                // first.
                Err(error) if error.errno == Errno::NOBUFS && self.pending > 0 => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let waited = self.acknowledged();
        match (failure, waited) {
            // The error reports the bytes acknowledged before the failure. The others remain in
            // flight.
            (Some(error), answer) => Err(Error { moved: answer.unwrap_or(0), ..error }),
            (None, answer) => answer,
        }
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn in_flight(&self) -> u64 {
        let unsent = match &self.feed {
            Feed::Memory(_) => 0,
            Feed::File(pool) => (pool.filled - pool.sent) as u64,
        };
        self.pending + unsent
    }

    fn drain(&mut self) -> Result<u64, Error> {
        if self.pending > 0 {
            return self.acknowledged();
        }
        let Feed::File(pool) = &mut self.feed else { return Ok(0) };
        let put = io::write(self.sink.fd, pool.unsent(usize::MAX));
        let put = put.map_err(|e| INFO.error("write", Side::Sink, e, 0))?;
        pool.sent += put;
        Ok(put as u64)
    }

    fn note(&self) -> Option<String> {
        let copied = self.sends.as_ref().map_or(0, ZerocopySends::copied);
        let all = self.calls;
        (copied > 0)
            .then(|| format!("the kernel copied the data of {copied} of {all} zero-copy sends"))
    }
}

impl MsgZerocopyMover<'_> {
    /// Sends once. If the source is a file, first reads from it. Returns 0 if the source has ended,
    /// or if all buffers wait for acknowledgement.
    fn send(&mut self, most: usize) -> Result<usize, Error> {
        let Some(sends) = &mut self.sends else { return Ok(0) };
        let most = most.min(self.buffer);
        let sent = match &mut self.feed {
            Feed::Memory([]) => return Ok(0),
            Feed::Memory(bytes) => sends.send(&bytes[..most.min(bytes.len())]),
            Feed::File(pool) => {
                if pool.sent == pool.filled && !pool.refill(most, self.pending == 0)? {
                    return Ok(0);
                }
                sends.send_unborrowed(pool.unsent(most))
            }
        };
        let sent = sent.map_err(|e| INFO.error("MSG_ZEROCOPY", Side::Sink, e, 0))?;
        if sent == 0 {
            return Err(INFO.error("MSG_ZEROCOPY", Side::Sink, Errno::INVAL, 0));
        }
        match &mut self.feed {
            Feed::Memory(bytes) => *bytes = &bytes[sent..],
            Feed::File(pool) => pool.sent += sent,
        }
        Ok(sent)
    }

    /// Waits until the kernel has released all bytes sent, and returns their number.
    fn acknowledged(&mut self) -> Result<u64, Error> {
        let failed = |errno| INFO.error("MSG_ERRQUEUE", Side::Sink, errno, 0);
        let Some(sends) = &mut self.sends else { return Ok(0) };
        if !sends.finish_within(CANCEL_CHECK).map_err(failed)? {
            return Err(failed(Errno::AGAIN));
        }
        Ok(std::mem::take(&mut self.pending))
    }
}

impl ZerocopyBuffers<'_> {
    /// Reads into a free buffer. Returns `false` if no buffer is free, or if the source has ended.
    fn refill(&mut self, most: usize, all_free: bool) -> Result<bool, Error> {
        if all_free {
            (self.used, self.filled, self.sent) = (0, 0, 0);
        }
        let Some(buffer) = self.buffers.get_mut(self.used) else { return Ok(false) };
        let into = buffer.bytes_mut().unwrap_or_default();
        let got = self.source.read(&mut into[..most]);
        let got = got.map_err(|e| INFO.error(self.source.read_call(), Side::Source, e, 0))?;
        if got > 0 {
            (self.used, self.filled, self.sent) = (self.used + 1, got, 0);
        }
        Ok(got > 0)
    }

    fn unsent(&self, most: usize) -> &[u8] {
        let end = self.filled.min(self.sent.saturating_add(most));
        let buffer = self.used.checked_sub(1).and_then(|last| self.buffers[last].bytes());
        &buffer.unwrap_or_default()[self.sent..end]
    }
}

impl Drop for MsgZerocopyMover<'_> {
    /// Abandons outstanding sends instead of waiting for them. Only an aborted transfer has any.
    /// Its peer may never read them, so the wait might not end.
    fn drop(&mut self) {
        if let Some(sends) = self.sends.take() {
            sends.abandon();
        }
    }
}
