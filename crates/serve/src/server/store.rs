//! Resources that a worker keeps between requests: open files, buffers and the formatted date.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{log::date, opened::ServedFile, send_buffer::ONE_SEND, version::FileVersion};

/// Maximum number of files kept open.
const FILES: usize = 64;
/// Maximum number of buffers kept.
const BUFFERS: usize = 4;

/// Resources of one worker.
#[derive(Debug, Default)]
pub struct Store {
    files: HashMap<PathBuf, KeptFile>,
    turn: u64,
    buffers: Vec<Vec<u8>>,
    date: (u64, String),
}

#[derive(Debug)]
struct KeptFile {
    file: Arc<ServedFile>,
    last: u64,
}

impl Store {
    /// Returns the open file of this path, if it is still this version.
    pub fn file(&mut self, path: &Path, version: &FileVersion) -> Option<Arc<ServedFile>> {
        let kept = self.files.get_mut(path).filter(|kept| kept.file.version == *version)?;
        kept.last = self.turn;
        Some(Arc::clone(&kept.file))
    }

    /// Keeps a file open for the next requests.
    pub fn keep(&mut self, path: &Path, file: &Arc<ServedFile>) {
        if self.files.len() >= FILES {
            self.files.clear();
        }
        let kept = KeptFile { file: Arc::clone(file), last: self.turn };
        self.files.insert(path.to_owned(), kept);
    }

    /// Closes the files that were not requested since the last call, so that removed files release their disk blocks.
    pub fn turn(&mut self) {
        let last = self.turn;
        self.files.retain(|_, kept| kept.last == last);
        self.turn += 1;
    }

    /// Returns `true` if no file is open.
    pub fn has_no_file(&self) -> bool {
        self.files.is_empty()
    }

    /// Closes all files. Returns `true` if there were any.
    pub fn close(&mut self) -> bool {
        let had = !self.files.is_empty();
        self.files.clear();
        had
    }

    /// Returns a buffer with unspecified contents.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Takes back a buffer for reuse, if it has a usual size.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let is_usual = (1..=2 * ONE_SEND).contains(&buffer.capacity());
        if self.buffers.len() < BUFFERS && is_usual {
            self.buffers.push(buffer);
        }
    }

    /// Formats a time as an HTTP date. The result is cached for a second.
    pub fn date(&mut self, now: SystemTime) -> &str {
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.date.0 != seconds || self.date.1.is_empty() {
            self.date = (seconds, date(now));
        }
        &self.date.1
    }
}
