//! Channels: connections over byte streams instead of network sockets. A stream leads to a command such as `ssh HOST
//! thalweg serve --stdio`, or consists of standard input and output.

use std::{
    fmt,
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use thalweg_core::cadence::CANCEL_CHECK;
use thalweg_sys::Errno;

use super::{
    FetchError,
    deadline::CancelCheck,
    remote_command::{RemoteChild, RemoteCommand},
};
use crate::{
    plans::KnownEnd,
    stream::{ByteStream, known_end},
};

/// The channels to one server. Idle channels are reused, because a new one may need a login.
pub struct Channels {
    source: ChannelSource,
    /// Largest number of open channels.
    most: usize,
    state: Mutex<ChannelState>,
    bell: Condvar,
}

enum ChannelSource {
    Command(RemoteCommand),
    /// The name of the peer. The stream already exists, and cannot be opened again.
    Stream(String),
}

#[derive(Default)]
struct ChannelState {
    idle: Vec<RemoteChannel>,
    /// Number of channels, including those in use.
    open: usize,
    /// `true` if a server has answered.
    has_answered: bool,
}

/// A channel: its stream, and the command at its other end.
struct RemoteChannel {
    stream: ByteStream,
    child: Option<RemoteChild>,
    sink: KnownEnd,
    /// `true` if the server has answered on this channel.
    has_answered: bool,
}

/// A channel in use. If it is dropped before [`HeldChannel::give_back`], it is closed.
pub struct HeldChannel {
    channel: Option<RemoteChannel>,
    pool: Arc<Channels>,
    /// `true` until the channel is given back. A channel that is closed instead reduces the number of open channels.
    is_counted: bool,
}

impl Channels {
    /// Returns channels that run the command, at most `most` at a time.
    pub fn by_command(command: RemoteCommand, most: usize) -> Arc<Self> {
        Arc::new(Self {
            source: ChannelSource::Command(command),
            most: most.max(1),
            state: Mutex::default(),
            bell: Condvar::new(),
        })
    }

    /// Returns channels that consist of one existing stream. `name`: the peer, for messages.
    pub fn over(stream: ByteStream, name: &str) -> Arc<Self> {
        let state = ChannelState {
            idle: vec![RemoteChannel::new(stream, None)],
            open: 1,
            ..ChannelState::default()
        };
        Arc::new(Self {
            source: ChannelSource::Stream(name.to_owned()),
            most: 1,
            state: Mutex::new(state),
            bell: Condvar::new(),
        })
    }

    /// Returns the name of the peer, for messages.
    pub fn name(&self) -> &str {
        match &self.source {
            ChannelSource::Command(command) => command.name(),
            ChannelSource::Stream(name) => name,
        }
    }

    /// Returns an idle channel, or opens one. If all are in use, waits for one.
    pub fn take(self: &Arc<Self>, check: &CancelCheck<'_>) -> Result<HeldChannel, FetchError> {
        let mut state = self.state();
        loop {
            if let Some(channel) = state.idle.pop() {
                return Ok(HeldChannel::of(self, Some(channel)));
            }
            match &self.source {
                ChannelSource::Stream(name) if state.open == 0 => {
                    return Err(FetchError::Ended(name.clone()));
                }
                ChannelSource::Command(command) if state.open < self.most => {
                    state.open += 1;
                    drop(state);
                    let mut held = HeldChannel::of(self, None);
                    let (stream, child) = command.start()?;
                    held.channel = Some(RemoteChannel::new(stream, Some(child)));
                    return Ok(held);
                }
                _ => {
                    let waited = self.bell.wait_timeout(state, CANCEL_CHECK);
                    (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
            check()?;
        }
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteChannel {
    fn new(stream: ByteStream, child: Option<RemoteChild>) -> Self {
        let sink = known_end(stream.output());
        Self { stream, child, sink, has_answered: false }
    }
}

impl HeldChannel {
    fn of(pool: &Arc<Channels>, channel: Option<RemoteChannel>) -> Self {
        Self { channel, pool: Arc::clone(pool), is_counted: true }
    }

    /// Makes the channel available to the next caller. No response may be outstanding.
    pub fn give_back(mut self) {
        if let Some(channel) = self.channel.take() {
            self.is_counted = false;
            self.pool.state().idle.push(channel);
            self.pool.bell.notify_one();
        }
    }

    /// Returns `true` if the server has answered on this channel.
    pub fn has_answered(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.has_answered)
    }

    /// Records that the server has answered.
    pub fn note_answer(&mut self) {
        if let Some(channel) = &mut self.channel
            && !std::mem::replace(&mut channel.has_answered, true)
        {
            self.pool.state().has_answered = true;
        }
    }

    /// Returns the descriptor to read from.
    pub fn input(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.channel.as_ref().ok_or(Errno::NOTCONN)?.stream.input())
    }

    /// Returns the descriptor to write to.
    pub fn output(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.channel.as_ref().ok_or(Errno::NOTCONN)?.stream.output())
    }

    /// Writes some of the bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let channel = self.channel.as_ref().ok_or(Errno::NOTCONN)?;
        channel.sink.write(channel.stream.output(), bytes)
    }

    /// Closes the channel, and returns the reason why it ended: the exit status of the command and its last message.
    pub fn end(&mut self, check: &CancelCheck<'_>) -> FetchError {
        let Some(channel) = self.channel.take() else {
            return FetchError::Ended(self.pool.name().to_owned());
        };
        let host = self.pool.name().to_owned();
        let RemoteChannel { stream, child, .. } = channel;
        let failure = stream.failure().map(|failure| failure.to_string());
        drop(stream);
        match child {
            None => FetchError::Ended(host),
            Some(mut child) => {
                let (code, why) =
                    failure.map_or_else(|| child.reason(check), |failure| (None, failure));
                if self.pool.state().has_answered {
                    return FetchError::Network { doing: "read from", host, why };
                }
                FetchError::Remote { host, code, why }
            }
        }
    }
}

impl Drop for HeldChannel {
    fn drop(&mut self) {
        if self.is_counted {
            drop(self.channel.take());
            self.pool.state().open -= 1;
            self.pool.bell.notify_one();
        }
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("name", &self.name()).finish_non_exhaustive()
    }
}
