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
pub struct Outputs(Folder);

impl Outputs {
    /// A new folder under the one for temporary files; the error names that one.
    pub fn new(purpose: &str) -> Result<Self, (PathBuf, io::Error)> {
        // TMPDIR may be relative, and programs change their folder.
        let parent = std::env::temp_dir();
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        Folder::named(&parent, purpose).map(Self).map_err(|error| (parent, error))
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

/// The last line with anything in it, shortened to what a message can hold.
pub fn last_words(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_one_short_line() {
        assert_eq!(last_words("a\n b c \n\n"), "b c");
        assert_eq!(last_words(""), "");
        assert_eq!(last_words(&"ä".repeat(300)).chars().count(), 203);
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
