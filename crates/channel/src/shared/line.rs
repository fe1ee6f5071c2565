//! The link of a channel that is open: it wakes a side that polls, tells of the peer's end, and in a
//! bulk transfer carries messages with descriptors.

use crate::error::{Error, Result};
use crate::link::Link;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::Instant;
use thalweg_sys::fork::Mark;
use thalweg_sys::peer;

/// Messages that are read at one go, as many as an honest peer can have sent and then some: a
/// dishonest one only keeps itself busy.
const MOST_AT_ONCE: usize = 64;
/// Messages kept for later. A transfer needs two at most.
const MOST_UNREAD: usize = 8;

#[derive(Debug)]
pub(crate) struct Message {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub link: Link,
    mark: Mark,
    /// Bytes of the longest message; 0 where every message is only there to wake.
    longest: usize,
    /// What came while the owner looked for wake-ups.
    unread: VecDeque<Result<Message>>,
}

impl Line {
    pub fn new(link: Link, longest: usize) -> Self {
        Self { link, mark: Mark::here(), longest, unread: VecDeque::new() }
    }

    /// Whether this is still the process that opened it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.mark.is_here()
    }

    /// [`Error::Forked`] in a child: it shares the memory, and what it wrote there would be taken for
    /// its parent's.
    #[inline]
    pub fn check_here(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::Forked { owner: self.mark.process() }) }
    }

    /// The next message that is no wake-up, if there is one now.
    pub fn next(&mut self) -> Result<Option<Message>> {
        match self.unread.pop_front() {
            Some(message) => message.map(Some),
            None => self.read(),
        }
    }

    /// Takes all wake-ups from the link; other messages are kept for [`Line::next`].
    pub fn drain(&mut self) -> Result<()> {
        if self.longest == 0 {
            let mut message = [0; 16];
            for _ in 0..MOST_AT_ONCE {
                match peer::receive(&self.link, &mut message) {
                    Ok(got) if got.len > 0 => {}
                    _ => break,
                }
            }
            return Ok(());
        }
        loop {
            match self.read() {
                // A link at its end will say so again.
                Ok(None) | Err(Error::Closed { .. }) => return Ok(()),
                _ if self.unread.len() >= MOST_UNREAD => {
                    return Err(Error::corrupt("messages that were not asked for"));
                }
                Ok(Some(message)) => self.unread.push_back(Ok(message)),
                Err(error) => self.unread.push_back(Err(error)),
            }
        }
    }

    fn read(&self) -> Result<Option<Message>> {
        let mut bytes = vec![0; self.longest];
        for _ in 0..MOST_AT_ONCE {
            match self.link.receive_until(&mut bytes, Some(Instant::now())) {
                Ok((1, _)) => {}
                Ok((len, fds)) => {
                    bytes.truncate(len);
                    return Ok(Some(Message { bytes, fds }));
                }
                Err(Error::Timeout) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
