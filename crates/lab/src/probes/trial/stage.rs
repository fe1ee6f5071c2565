//! What a trial puts on disk while it runs: the object, the file of counts, and what programs say.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};
use thalweg_preload::counts::{Counts, blank};

use super::TrialError;
use crate::scratch::Folder;

/// Of longer output only the end is looked at.
const MOST_TEXT: u64 = 16 << 20;

/// A folder with the object in it, gone at the end.
pub struct Stage {
    folder: Folder,
    object: PathBuf,
}

impl Stage {
    /// Writes the object into a new folder under the one for temporary files.
    pub fn set_up(object: &[u8]) -> Result<Self, TrialError> {
        // TMPDIR may be relative, and programs change their folder.
        let parent = std::env::temp_dir();
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        let failed = |path: &Path, error: io::Error| TrialError::Folder {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        let folder = Folder::named(&parent, "trial").map_err(|e| failed(&parent, e))?;
        let path = folder.file("thalweg-preload.so");
        // The loader splits the list at these.
        if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t')) {
            let why =
                "LD_PRELOAD takes no path with blanks or colons; set TMPDIR to another folder";
            return Err(TrialError::Folder {
                path: path.display().to_string(),
                why: why.to_owned(),
            });
        }
        let written = fs::write(&path, object);
        // A program may start children as another user.
        let written =
            written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
        written.map_err(|e| failed(&path, e))?;
        Ok(Self { folder, object: path })
    }

    /// The object.
    pub fn object(&self) -> &Path {
        &self.object
    }

    /// A file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// A file for what a program says.
    pub fn ear(&self, name: &str) -> Result<File, String> {
        let path = self.file(name);
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// What it said.
    pub fn heard(&self, name: &str) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.file(name))?;
            let start = file.metadata()?.len().saturating_sub(MOST_TEXT);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take(MOST_TEXT).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// A new file to count in, writable for every user.
    pub fn counts(&self) -> Result<PathBuf, String> {
        let path = self.file("counts");
        let written = fs::write(&path, blank());
        let written =
            written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o666)));
        written.map(|()| path.clone()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// What was counted in it.
    pub fn counted(&self) -> Result<Counts, String> {
        let path = self.file("counts");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Counts::read(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }
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
    fn what_is_put_there_can_be_read_and_goes() {
        let stage = Stage::set_up(b"object").unwrap();
        assert_eq!(fs::read(stage.object()).unwrap(), b"object");
        stage.counts().unwrap();
        assert_eq!(stage.counted().unwrap(), Counts::default());
        assert_eq!(stage.heard("nothing"), "");
        let folder = stage.object().parent().unwrap().to_owned();
        drop(stage);
        assert!(!folder.exists());
    }

    #[test]
    fn the_last_words_are_one_short_line() {
        assert_eq!(last_words("a\n b c \n\n"), "b c");
        assert_eq!(last_words(""), "");
        assert_eq!(last_words(&"ä".repeat(300)).chars().count(), 203);
    }
}
