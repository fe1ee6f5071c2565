//! What a worker keeps from one request to the next: open files, buffers, and the date in words.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{gathered::ONE_SEND, log::date, opened::Opened, version::Version};

/// The most files that are kept open.
const FILES: usize = 64;
/// The most buffers that are kept.
const BUFFERS: usize = 4;

/// A worker's own.
#[derive(Debug, Default)]
pub struct Store {
    files: HashMap<PathBuf, Kept>,
    turn: u64,
    buffers: Vec<Vec<u8>>,
    date: (u64, String),
}

#[derive(Debug)]
struct Kept {
    file: Arc<Opened>,
    last: u64,
}

impl Store {
    /// The file that was opened by this name before, if it is this version of it.
    pub fn file(&mut self, path: &Path, version: &Version) -> Option<Arc<Opened>> {
        let kept = self.files.get_mut(path).filter(|kept| kept.file.version == *version)?;
        kept.last = self.turn;
        Some(Arc::clone(&kept.file))
    }

    /// Keeps a file open for those who ask for it next.
    pub fn keep(&mut self, path: &Path, file: &Arc<Opened>) {
        if self.files.len() >= FILES {
            self.files.clear();
        }
        let kept = Kept { file: Arc::clone(file), last: self.turn };
        self.files.insert(path.to_owned(), kept);
    }

    /// Closes what nobody has asked for since the last time: a file that was removed gives up its blocks.
    pub fn turn(&mut self) {
        let last = self.turn;
        self.files.retain(|_, kept| kept.last == last);
        self.turn += 1;
    }

    /// Closes them all; whether there were any.
    pub fn close(&mut self) -> bool {
        let had = !self.files.is_empty();
        self.files.clear();
        had
    }

    /// A buffer, in which anything may be.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Gives one back.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let is_usual = (1..=2 * ONE_SEND).contains(&buffer.capacity());
        if self.buffers.len() < BUFFERS && is_usual {
            self.buffers.push(buffer);
        }
    }

    /// A moment as headers say it.
    pub fn date(&mut self, now: SystemTime) -> &str {
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.date.0 != seconds || self.date.1.is_empty() {
            self.date = (seconds, date(now));
        }
        &self.date.1
    }
}
