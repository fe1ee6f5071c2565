//! Files for the output of commands. With pipes, a slow reader would block the commands.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use crate::scratch::ScratchFolder;

/// Maximum bytes of output that are read. Of longer output, only the end is read.
const MOST_TEXT: u64 = 16 << 20;

/// A temporary directory with the output files; removed when dropped.
#[derive(Debug)]
pub struct Outputs(ScratchFolder);

impl Outputs {
    /// Creates a directory inside the directory for temporary files. The error contains the path of the parent
    /// directory.
    pub fn new(purpose: &str) -> Result<Self, (PathBuf, io::Error)> {
        // TMPDIR may be relative, and programs may change their working directory.
        let parent = std::env::temp_dir();
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        Self::inside(&parent, purpose).map_err(|error| (parent, error))
    }

    /// Creates a directory inside `parent`.
    pub fn inside(parent: &Path, purpose: &str) -> io::Result<Self> {
        ScratchFolder::named(parent, purpose).map(Self)
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    /// Creates an empty file for a program's output.
    pub fn create(&self, name: &str) -> Result<File, String> {
        let path = self.path(name);
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn read(&self, name: &str) -> String {
        let bytes = end_of(&self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(MOST_TEXT);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MOST_TEXT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the last non-empty lines, as many as fit into a message. A line that is too long is truncated. Several
/// lines are used because a program may print advice after the reason.
pub fn last_words(text: &str) -> String {
    const MOST: usize = 200;
    let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let mut words = lines.next().unwrap_or_default().to_owned();
    if let Some((end, _)) = words.char_indices().nth(MOST) {
        return format!("{}...", &words[..end]);
    }
    for line in lines {
        let more = format!("{line} | {words}");
        if more.chars().count() > MOST {
            break;
        }
        words = more;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_the_lines_that_a_message_can_hold() {
        assert_eq!(last_words("a\n b c \n\n"), "a | b c");
        assert_eq!(last_words(""), "");
        let long = "ä".repeat(300);
        assert_eq!(last_words(&long).chars().count(), 203);
        assert_eq!(last_words(&format!("{long}\nwhy\ntry that")), "why | try that");
    }

    #[test]
    fn a_file_that_was_never_made_holds_nothing_and_the_folder_goes() {
        let outputs = Outputs::new("outputs-test").unwrap();
        assert_eq!(outputs.read("nothing"), "");
        let path = outputs.path("");
        drop(outputs);
        assert!(!path.exists());
    }
}
