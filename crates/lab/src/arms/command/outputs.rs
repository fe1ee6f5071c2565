//! Files for what commands print: a pipe that is read late would hold them up.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use crate::scratch::Folder;

/// Of longer output only the end is looked at.
const MOST_TEXT: u64 = 16 << 20;

/// A folder with these files, gone at the end.
#[derive(Debug)]
pub struct Outputs(Folder);

impl Outputs {
    /// A new folder under the one for temporary files; the error names that one.
    pub fn new(purpose: &str) -> Result<Self, (PathBuf, io::Error)> {
        // TMPDIR may be relative, and programs change their folder.
        let parent = std::env::temp_dir();
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        Self::inside(&parent, purpose).map_err(|error| (parent, error))
    }

    /// A new folder inside this one.
    pub fn inside(parent: &Path, purpose: &str) -> io::Result<Self> {
        Folder::named(parent, purpose).map(Self)
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    /// An empty file for what a program prints.
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

/// The last lines with anything in them, as many as a message can hold; of one that is too long the beginning.
/// A program may follow its reason with advice.
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
