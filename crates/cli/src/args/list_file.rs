//! Reads the files of options such as `--files-from`, and splits them into lines.

use std::{
    fs::File,
    io::{Read, stdin},
    path::Path,
};
use thalweg_core::shown;

use crate::{
    exit::{CommandFailure, INPUT},
    stdio::expect_open,
};

/// The contents of a file that an option names, to be split into lines.
pub struct ListFile {
    /// Name for messages: `'FILE'`.
    name: String,
    bytes: Vec<u8>,
    end: u8,
}

impl ListFile {
    /// Reads the whole file; `-` is standard input.
    pub fn read(path: &Path, from0: bool) -> Result<Self, CommandFailure> {
        let mut bytes = Vec::new();
        let is_input = path.as_os_str() == "-";
        let name = if is_input { INPUT.to_owned() } else { shown(path).to_string() };
        let read = if is_input {
            expect_open(0, INPUT)?;
            stdin().lock().read_to_end(&mut bytes)
        } else {
            let file = File::open(path);
            file.map_err(|e| CommandFailure::of_io("open", &name, &e))?.read_to_end(&mut bytes)
        };
        read.map_err(|e| CommandFailure::of_io("read", &name, &e))?;
        let name = if is_input { name } else { format!("'{name}'") };
        Ok(Self { name, bytes, end: if from0 { 0 } else { b'\n' } })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the non-empty lines, each with its position for messages.
    pub fn lines(&self) -> impl Iterator<Item = (String, &[u8])> {
        let lines = self.bytes.split(|byte| *byte == self.end).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty());
        lines.map(|(index, line)| (format!("{}, line {}", self.name, index + 1), line))
    }
}
