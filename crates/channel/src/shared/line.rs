//! The link of an open channel. It wakes a polling side, signals the end of the peer, and, in a bulk
//! transfer, carries messages with descriptors.

use crate::error::{Error, Result};
use crate::link::Link;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::Instant;
use thalweg_sys::fork::ForkMark;
use thalweg_sys::peer;

/// Maximum number of messages read per call. An honest peer sends fewer; a dishonest one cannot keep
/// the caller busy for ever.
const MOST_AT_ONCE: usize = 64;
/// Maximum number of messages kept for later. A transfer needs two at most.
const MOST_UNREAD: usize = 8;

#[derive(Debug)]
pub(crate) struct Message {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct LinkLine {
    pub link: Link,
    mark: ForkMark,
    /// Size of the longest message in bytes; 0 if all messages are wake-ups.
    longest: usize,
    /// Messages that arrived while the owner drained wake-ups.
    unread: VecDeque<Result<Message>>,
}

impl LinkLine {
    pub fn new(link: Link, longest: usize) -> Self {
        Self { link, mark: ForkMark::here(), longest, unread: VecDeque::new() }
    }

    /// Returns `true` if this is still the process that opened the channel, not a forked child.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.mark.is_here()
    }

    /// Returns [`Error::Forked`] in a forked child. A child shares the memory, and the peer would take
    /// its writes for the parent's.
    #[inline]
    pub fn check_here(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::Forked { owner: self.mark.process() }) }
    }

    /// Returns the next message that is not a wake-up, if one is available now.
    pub fn next(&mut self) -> Result<Option<Message>> {
        match self.unread.pop_front() {
            Some(message) => message.map(Some),
            None => self.read(),
        }
    }

    /// Removes all wake-ups from the link; other messages are kept for [`LinkLine::next`].
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
                // The end of the link need not be kept: the next call reports `Closed` again.
                Ok(None) | Err(Error::Closed { .. }) => return Ok(()),
                _ if self.unread.len() >= MOST_UNREAD => {
                    return Err(Error::corrupt("too many unexpected messages"));
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
