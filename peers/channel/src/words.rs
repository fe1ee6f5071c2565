//! The parameters: arguments of the form key=value, like those of the C programs.

use crate::Outcome;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The two processes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A, which the lab started.
    Sender,
    /// B, which A started.
    Receiver,
}

/// The kind of work; see `two.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Sends a message and receives its copy.
    PingPong,
    /// Sends messages in one direction.
    Stream,
    /// Sends buffers, each of which is answered.
    Bulk,
}

/// All parameters, parsed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The role of this process.
    pub side: Side,
    /// The kind of work.
    pub job: Job,
    /// Size of a message or buffer in bytes.
    pub bytes: usize,
    /// `true`: B receives into memory that it has never written.
    pub fresh: bool,
    /// `true`: A writes the source into memory that the method lends.
    pub loan: bool,
    /// `true`: the method allocates B's memory.
    pub new: bool,
    /// `true`: each process is pinned to its own processor.
    pub pinned: bool,
    /// `true`: a byte is changed before sending, so that `check` must find a difference.
    pub spoil: bool,
    /// Directory for files.
    pub scratch: PathBuf,
    /// A's process id. It makes the names that both processes use unique.
    pub pair: u32,
    words: HashMap<String, String>,
}

const KEYS: &[&str] =
    &["job", "bytes", "fresh", "loan", "new", "pin", "spoil", "scratch", "side", "pair"];

impl Setting {
    /// Parses the arguments of this process.
    pub fn of_arguments(keys: &[&str]) -> Outcome<Self> {
        let mut words = HashMap::new();
        for word in std::env::args().skip(1) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("{word}: not of the form key=value"));
            };
            if !KEYS.contains(&key) && !keys.contains(&key) {
                let known = [KEYS, keys].concat().join(" ");
                return Err(format!("{key}: no such parameter; known: {known}"));
            }
            words.insert(key.to_owned(), value.to_owned());
        }
        Self::of_words(words)
    }

    fn of_words(words: HashMap<String, String>) -> Outcome<Self> {
        let text = |key: &str, otherwise: &str| {
            words.get(key).map_or_else(|| otherwise.to_owned(), Clone::clone)
        };
        let number = |key: &str, otherwise: u64| match words.get(key) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("{key}={text}: not a number")),
        };
        let yes = |key: &str| number(key, 0).map(|number| number != 0);
        let job = match text("job", "ping-pong").as_str() {
            "ping-pong" => Job::PingPong,
            "stream" => Job::Stream,
            "bulk" => Job::Bulk,
            other => return Err(format!("job={other}: not known here")),
        };
        let side = match text("side", "sender").as_str() {
            "sender" => Side::Sender,
            "receiver" => Side::Receiver,
            other => return Err(format!("side={other}: not known here")),
        };
        let bytes = number("bytes", 64)?;
        if !(8..=1 << 40).contains(&bytes) {
            return Err(format!("bytes={bytes}: a message has 8 bytes at least, 2^40 at most"));
        }
        let setting = Self {
            side,
            job,
            bytes: bytes as usize,
            fresh: yes("fresh")?,
            loan: yes("loan")?,
            new: yes("new")?,
            pinned: yes("pin")?,
            spoil: yes("spoil")?,
            scratch: PathBuf::from(text("scratch", ".")),
            pair: number("pair", u64::from(std::process::id()))? as u32,
            words,
        };
        if job != Job::Bulk && (setting.fresh || setting.loan || setting.new) {
            return Err("fresh, loan and new are for job=bulk".to_owned());
        }
        Ok(setting)
    }

    /// Returns the index of a parameter's value in a list; 0 if the parameter is not given.
    pub fn choice(&self, key: &str, list: &[&str]) -> Outcome<usize> {
        let Some(text) = self.words.get(key) else { return Ok(0) };
        let place = list.iter().position(|word| word == text);
        place.ok_or_else(|| format!("{key}={text}: not known here"))
    }

    /// Returns the value of a parameter.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    /// Returns the number of messages that may be in flight in a stream: about 1 MiB of them.
    pub fn depth(&self) -> usize {
        ((1 << 20) / self.bytes).clamp(4, 1024)
    }
}

/// Maximum time for the two processes to find each other.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Retries until the other process is ready.
pub fn retry<T, E: std::fmt::Debug>(
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Outcome<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > until => return Err(format!("{what}: {error:?}")),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
