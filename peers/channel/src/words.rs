//! The parameters: words of the form key=value, as for the C programs.

use crate::Outcome;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A, which the lab started.
    Sender,
    /// B, which A started.
    Receiver,
}

/// What is done; see `two.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// A message there and its copy back.
    PingPong,
    /// Messages one way.
    Stream,
    /// A buffer, and an answer for each.
    Bulk,
}

/// All parameters, read.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which process.
    pub side: Side,
    /// What is done.
    pub job: Job,
    /// Bytes of a message or buffer.
    pub bytes: usize,
    /// Into memory that B has never touched.
    pub fresh: bool,
    /// A's source is born in memory that the way lends.
    pub loan: bool,
    /// B's memory is made by the way.
    pub new: bool,
    /// Each process on a processor of its own.
    pub pinned: bool,
    /// A byte is changed on the way, so that `check` has something to find.
    pub spoil: bool,
    /// For files.
    pub scratch: PathBuf,
    /// A's process number: what the two share no name with others by.
    pub pair: u32,
    words: HashMap<String, String>,
}

const KEYS: &[&str] =
    &["job", "bytes", "fresh", "loan", "new", "pin", "spoil", "scratch", "side", "pair"];

impl Setting {
    /// Those of this process.
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

    /// The place of a parameter's value in a list; the first one where it is not given.
    pub fn choice(&self, key: &str, list: &[&str]) -> Outcome<usize> {
        let Some(text) = self.words.get(key) else { return Ok(0) };
        let place = list.iter().position(|word| word == text);
        place.ok_or_else(|| format!("{key}={text}: not known here"))
    }

    /// A parameter's value.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    /// Messages that may be under way in a stream: about a mebibyte of them.
    pub fn depth(&self) -> usize {
        ((1 << 20) / self.bytes).clamp(4, 1024)
    }
}

/// How long the two look for each other.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Tries until the other process has come so far.
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
