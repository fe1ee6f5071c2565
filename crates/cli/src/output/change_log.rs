//! The log of a sync: a line for each change, and the summary.

use rustix::fs::OFlags;
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};
use thalweg_core::{atomic_file::open_in_place, shown};

use crate::{exit::CommandFailure, output::text::keep};

#[derive(Debug)]
pub struct ChangeLog {
    path: PathBuf,
    file: Mutex<File>,
}

impl ChangeLog {
    /// Opens the log for appending. Entries that another user may have planted are refused.
    pub fn open(path: &Path) -> Result<Self, CommandFailure> {
        let opened = open_in_place(path, OFlags::WRONLY | OFlags::APPEND);
        let file = opened.map_err(|error| CommandFailure::of_destination(error, path))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file.into()) })
    }

    /// Appends a line with the time. A failure is reported when the command ends.
    pub fn line(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let written = file.write_all(format!("{now} {line}\n").as_bytes());
        let name = shown(&self.path).to_string();
        keep(written.map_err(|error| CommandFailure::of_io("write", &name, &error)));
    }
}
