//! A command with a connection as its standard input and output, such as `ssh HOST thalweg serve --stdio`.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use thalweg_core::cadence::{Deadline, GRACE, RETRY_PAUSE};
use thalweg_core::error::reason;
use thalweg_sys::Errno;

use super::{FetchError, deadline::CancelCheck};
use crate::stream::ByteStream;

/// Receives the lines that the command writes to standard error.
pub type LineSink = Arc<dyn Fn(&str) + Send + Sync>;

/// A command that can be started several times.
#[derive(Clone)]
pub struct RemoteCommand {
    words: Vec<OsString>,
    name: String,
    lines: LineSink,
    /// `true` if the streams are compressed.
    compress: bool,
}

/// A started command. Dropping it kills and reaps the process.
pub struct RemoteChild {
    child: Child,
    /// The last line of standard error.
    last: Arc<Mutex<String>>,
    /// Disconnected when standard error ends.
    ended: mpsc::Receiver<()>,
}

/// Longest line of standard error, in bytes. A longer one is split.
const LONGEST_LINE: u64 = 64 << 10;
/// Longest wait for the last lines of a command after its end. Another process may keep standard error open, such as
/// the master of ssh's ControlPersist.
const LAST_LINES: Duration = Duration::from_millis(200);

impl RemoteCommand {
    /// `name`: the peer, for messages. `lines`: called with each line of standard error.
    pub fn new(words: Vec<OsString>, name: String, lines: LineSink) -> Self {
        Self { words, name, lines, compress: false }
    }

    /// Compresses the streams if `compress` is `true`. The command must compress them too.
    #[must_use]
    pub fn compress(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Returns the name of the peer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the command, connected to the returned stream.
    pub fn start(&self) -> Result<(ByteStream, RemoteChild), FetchError> {
        let (stream, far) = self.stream()?;
        Ok((stream, self.start_over(far)?))
    }

    /// Creates a stream, and the end of it for [`Self::start_over`].
    pub fn stream(&self) -> Result<(ByteStream, OwnedFd), FetchError> {
        let set_up = |errno: Errno| self.failed(&std::io::Error::from(errno));
        let (stream, far) = ByteStream::pair().map_err(set_up)?;
        let stream = if self.compress { stream.compress().map_err(set_up)? } else { stream };
        Ok((stream, far))
    }

    /// Starts the command, connected to `far`.
    pub fn start_over(&self, far: OwnedFd) -> Result<RemoteChild, FetchError> {
        let [program, words @ ..] = &self.words[..] else {
            return Err(FetchError::Usage("the command of the connection is empty".to_owned()));
        };
        let input = far.try_clone().map_err(|error| self.failed(&error))?;
        let mut command = Command::new(program);
        command.args(words).stdin(input).stdout(far).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.failed(&error))?;
        // Only the command may hold the other end, so that its exit ends the stream.
        drop(command);
        let last = Arc::new(Mutex::new(String::new()));
        let (is_open, ended) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            let (lines, last) = (Arc::clone(&self.lines), Arc::clone(&last));
            let read = move || {
                pass_on(stderr, &lines, &last);
                drop(is_open);
            };
            // Without the thread, the pipe closes and the command's messages are lost.
            let _ = thread::Builder::new().name("remote".to_owned()).spawn(read);
        }
        Ok(RemoteChild { child, last, ended })
    }

    fn failed(&self, error: &std::io::Error) -> FetchError {
        let program = self.words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        let why = format!("cannot start '{program}': {}", reason(error));
        FetchError::Remote { host: self.name.clone(), code: None, why }
    }
}

impl RemoteChild {
    /// Waits for the end of the command.
    pub fn wait(&mut self, check: &CancelCheck<'_>) -> Result<ExitStatus, FetchError> {
        loop {
            if let Some(status) = self.status() {
                let _ = self.ended.recv_timeout(LAST_LINES);
                return Ok(status);
            }
            check()?;
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Returns the exit status if the command has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns `true` if the command has written a message to standard error.
    pub fn has_written(&self) -> bool {
        !self.last.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Waits for the end of a command that closed its connection. Returns its exit code, and the reason in words.
    pub fn reason(&mut self, check: &CancelCheck<'_>) -> (Option<i32>, String) {
        let deadline = Deadline::after(GRACE);
        let is_over = || if deadline.passed() { Err(thalweg_core::Cancelled) } else { check() };
        let ended = self.wait(&is_over);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let last = if last.is_empty() { last } else { format!(": {last}") };
        match ended {
            Ok(status) => (status.code(), format!("{}{last}", in_words(status))),
            Err(_) => (None, format!("closed the connection{last}")),
        }
    }
}

impl Drop for RemoteChild {
    fn drop(&mut self) {
        // Both calls fail for a command that was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns text such as `exited with status 127`.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Passes each line on, until standard error ends.
fn pass_on(stderr: ChildStderr, lines: &LineSink, last: &Mutex<String>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = thalweg_core::shown(text.trim_end()).to_string();
        if !text.is_empty() {
            last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&text);
            lines(&text);
        }
    }
}
