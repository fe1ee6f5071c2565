//! The connections of a copy to another machine after the first one. The other side requests each of them with a line on
//! standard error, when it needs one.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};
use thalweg_core::shown;
use thalweg_serve::{
    ByteStream,
    client::{FetchError, RemoteChild, RemoteCommand, in_words},
};

use crate::output::text::{complain, note};

/// Prefix of the line with which the other side requests a connection. The key follows.
const REQUEST: &str = "=+ ";

/// The connections after the first one.
pub struct FurtherConnections {
    key: String,
    /// The command that passes its connection to the process of the first connection.
    command: RemoteCommand,
    most: usize,
    state: Mutex<FurtherState>,
}

#[derive(Default)]
struct FurtherState {
    /// The ends of the streams that are not connected to a command yet.
    far: Vec<OwnedFd>,
    children: Vec<RemoteChild>,
}

impl FurtherConnections {
    /// Returns at most `most` connections by this command, which contains the key.
    pub fn new(key: String, command: RemoteCommand, most: usize) -> Self {
        Self { key, command, most, state: Mutex::default() }
    }

    /// Creates the streams. Each is connected to a command when the other side requests it.
    pub fn streams(&self) -> Result<Vec<ByteStream>, FetchError> {
        let (mut streams, mut state) = (Vec::new(), self.state());
        for _ in 0..self.most {
            let (stream, far) = self.command.stream()?;
            streams.push(stream);
            state.far.push(far);
        }
        Ok(streams)
    }

    /// Opens a connection if the line requests one. Returns `false` for any other line.
    pub fn take(&self, line: &str) -> bool {
        if line.strip_prefix(REQUEST) != Some(&*self.key) {
            return false;
        }
        let mut state = self.state();
        // The other side does not know the number of connections, so it may request too many.
        if let Some(far) = state.far.pop() {
            match self.command.start_over(far) {
                Ok(child) => state.children.push(child),
                Err(error) => complain(&format!("{error}; continuing with fewer connections")),
            }
        }
        true
    }

    /// Reports the connections that have failed. The other side continues without them.
    pub fn report_failed(&self) {
        self.state().children.retain_mut(|child| {
            let Some(status) = child.status() else { return true };
            if !status.success() {
                let (host, why) = (shown(self.command.name()), in_words(status));
                let fewer = "continuing with fewer connections";
                complain(&format!("{host}: a further connection {why}; {fewer}"));
            }
            false
        });
    }

    /// Closes the connections.
    pub fn close(&self) {
        *self.state() = FurtherState::default();
    }

    fn state(&self) -> MutexGuard<'_, FurtherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a random key, so that no other copy receives the connections.
pub fn random_key() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Requests a connection from the machine that started this copy.
pub fn request(key: &str) {
    note(&format!("{REQUEST}{key}"));
}
