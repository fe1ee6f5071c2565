//! Channels: connections over byte streams instead of network sockets. A stream leads to a command such as `ssh HOST
//! thalweg serve --stdio`, or consists of standard input and output.

use std::{
    fmt,
    os::fd::{BorrowedFd, OwnedFd},
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
    state: Mutex<ChannelState>,
    bell: Condvar,
}

/// Asks the peer for one more stream, and returns at once. The stream may arrive later, in [`Channels::add`].
pub type StreamRequest = Box<dyn Fn() + Send + Sync>;

enum ChannelSource {
    Command(RemoteCommand),
    /// Streams that exist already. A stream that has ended is not replaced.
    Streams {
        /// The name of the peer.
        name: String,
        request: Option<StreamRequest>,
    },
}

#[derive(Default)]
struct ChannelState {
    idle: Vec<RemoteChannel>,
    /// Number of channels, including those in use.
    open: usize,
    /// Largest number of open channels of a command. It falls if a server refuses further connections.
    most: usize,
    /// Number of calls of the [`StreamRequest`].
    requested: usize,
    /// `true` if a server has answered.
    has_answered: bool,
}

/// A channel: its stream, and the command at its other end.
struct RemoteChannel {
    stream: ByteStream,
    child: Option<RemoteChild>,
    /// Closed after the stream, so that the process that passed the stream ends.
    _link: Option<OwnedFd>,
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

/// Largest number of streams that are requested. The peer may open fewer.
const MOST_REQUESTED: usize = 63;

impl Channels {
    /// Returns channels that run the command, at most `most` at a time.
    pub fn by_command(command: RemoteCommand, most: usize) -> Arc<Self> {
        let state = ChannelState { most: most.max(1), ..ChannelState::default() };
        Arc::new(Self {
            source: ChannelSource::Command(command),
            state: Mutex::new(state),
            bell: Condvar::new(),
        })
    }

    /// Returns channels that consist of one existing stream. `name`: the peer, for messages.
    pub fn over(stream: ByteStream, name: &str) -> Arc<Self> {
        Self::of_streams(stream, name, None)
    }

    /// Returns channels over one existing stream, and over those that arrive later in [`Self::add`]. `request` is
    /// called when a caller has to wait for a channel.
    pub fn over_several(stream: ByteStream, name: &str, request: StreamRequest) -> Arc<Self> {
        Self::of_streams(stream, name, Some(request))
    }

    fn of_streams(stream: ByteStream, name: &str, request: Option<StreamRequest>) -> Arc<Self> {
        let state = ChannelState {
            idle: vec![RemoteChannel::new(stream, None)],
            open: 1,
            ..ChannelState::default()
        };
        Arc::new(Self {
            source: ChannelSource::Streams { name: name.to_owned(), request },
            state: Mutex::new(state),
            bell: Condvar::new(),
        })
    }

    /// Returns the name of the peer, for messages.
    pub fn name(&self) -> &str {
        match &self.source {
            ChannelSource::Command(command) => command.name(),
            ChannelSource::Streams { name, .. } => name,
        }
    }

    /// Adds a stream that the peer opened on request. `link` is closed together with the stream.
    pub fn add(&self, stream: ByteStream, link: OwnedFd) {
        let channel = RemoteChannel { _link: Some(link), ..RemoteChannel::new(stream, None) };
        let mut state = self.state();
        state.open += 1;
        state.idle.push(channel);
        drop(state);
        self.bell.notify_one();
    }

    /// Returns an idle channel, or opens one. If all are in use, requests another stream and waits for the first channel.
    pub fn take(self: &Arc<Self>, check: &CancelCheck<'_>) -> Result<HeldChannel, FetchError> {
        let mut has_requested = false;
        let mut state = self.state();
        loop {
            if let Some(channel) = state.idle.pop() {
                return Ok(HeldChannel::of(self, Some(channel)));
            }
            match &self.source {
                ChannelSource::Streams { name, .. } if state.open == 0 => {
                    return Err(FetchError::Ended(name.clone()));
                }
                ChannelSource::Streams { request: Some(request), .. }
                    if !has_requested && state.requested < MOST_REQUESTED =>
                {
                    has_requested = true;
                    state.requested += 1;
                    drop(state);
                    request();
                    state = self.state();
                }
                ChannelSource::Command(command) if state.open < state.most => {
                    state.open += 1;
                    drop(state);
                    let mut held = HeldChannel::of(self, None);
                    match command.start() {
                        Ok((stream, child)) => {
                            held.channel = Some(RemoteChannel::new(stream, Some(child)));
                            return Ok(held);
                        }
                        Err(error) if !held.continues_with_fewer() => return Err(error),
                        Err(_) => drop(held),
                    }
                    state = self.state();
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
        Self { stream, child, _link: None, sink, has_answered: false }
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

    /// Returns `true` if another channel can be opened in place of this one.
    pub fn is_replaceable(&self) -> bool {
        matches!(self.pool.source, ChannelSource::Command(_))
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

    /// Lowers the maximum number of channels if other channels exist, which then do the work of this one. Returns
    /// `false` if this is the only channel.
    fn continues_with_fewer(&self) -> bool {
        let mut state = self.pool.state();
        let others = state.open - 1;
        if others > 0 {
            state.most = state.most.min(others);
        }
        others > 0
    }

    /// Closes the channel, and returns the reason why it ended: the exit status of the command and its last message.
    pub fn end(&mut self, check: &CancelCheck<'_>) -> FetchError {
        let Some(channel) = self.channel.take() else {
            return FetchError::Ended(self.pool.name().to_owned());
        };
        let host = self.pool.name().to_owned();
        let RemoteChannel { stream, child, has_answered, .. } = channel;
        let failure = stream.failure().map(|failure| failure.to_string());
        drop(stream);
        match child {
            // The caller retries over the other channels. This channel is counted until `self` is dropped.
            None if self.pool.state().open > 1 => {
                let why = "the connection has ended".to_owned();
                FetchError::Network { doing: "read from", host, why }
            }
            None => FetchError::Ended(host),
            Some(mut child) => {
                let (code, why) =
                    failure.map_or_else(|| child.reason(check), |failure| (None, failure));
                // The server may allow fewer connections, so a retry waits for another channel.
                if !has_answered {
                    self.continues_with_fewer();
                }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_caller_that_waits_requests_a_stream_and_the_last_end_is_final() {
        let (first, _far) = ByteStream::pair().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let request = Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let channels = Channels::over_several(first, "peer", request);
        let check = || Ok(());
        let mut one = channels.take(&check).unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), 0);
        // Each wait requests one stream, however long it takes.
        let waits = AtomicUsize::new(0);
        let gives_up = || {
            let count = waits.fetch_add(1, Ordering::Relaxed);
            if count < 3 { Ok(()) } else { Err(thalweg_core::Cancelled) }
        };
        assert!(matches!(channels.take(&gives_up), Err(FetchError::Cancelled)));
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        let (second, _far) = ByteStream::pair().unwrap();
        let (near, link) = thalweg_sys::net::unix_pair(false).unwrap();
        channels.add(second, link);
        let mut other = channels.take(&check).unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        // The lost connection is a temporary error while another one exists.
        assert!(other.end(&check).is_passing());
        drop(other);
        assert_eq!(thalweg_sys::io::read(&near, &mut [0; 1]), Ok(0));
        assert!(matches!(one.end(&check), FetchError::Ended(_)));
        drop(one);
        assert!(matches!(channels.take(&check), Err(FetchError::Ended(_))));
    }
}
