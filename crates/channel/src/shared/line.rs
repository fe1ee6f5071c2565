//! The link of an open channel. It wakes a side that polls, shows that the peer is gone, and carries the messages with
//! descriptors of a bulk transfer.

use crate::error::{Error, Result};
use crate::link::Link;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::Instant;
use thalweg_sys::fork::ForkMark;
use thalweg_sys::peer;

/// Maximum number of messages read per call. An honest peer never sends that many. Without the limit, a hostile peer
/// could keep the caller busy forever.
const MOST_AT_ONCE: usize = 64;
/// Maximum number of messages kept for later. A bulk transfer needs two at most.
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
    /// Maximum size of a message in bytes; 0 if the link carries only wake-ups.
    longest: usize,
    /// Messages that arrived while this side removed wake-ups from the link.
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

    /// Returns [`Error::Forked`] in a forked child. The child has the same memory as its parent, and the peer would
    /// take the child's writes for those of the parent.
    #[inline]
    pub fn check_here(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::Forked { owner: self.mark.process() }) }
    }

    /// Returns the next message that is not a wake-up, or `None` if none is available now.
    pub fn next(&mut self) -> Result<Option<Message>> {
        match self.unread.pop_front() {
            Some(message) => message.map(Some),
            None => self.read(),
        }
    }

    /// Removes all wake-ups from the link. Keeps other messages for [`LinkLine::next`].
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
                // A closed link need not be recorded, because the next read reports it again.
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
