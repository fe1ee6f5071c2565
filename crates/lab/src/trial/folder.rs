//! The temporary files of a trial: the object, the file of counts, and the output of programs.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};
use thalweg_preload::counts::{Counts, blank};

use super::TrialError;
use thalweg_measure::arms::command::Outputs;

/// A temporary directory with the object; removed at the end.
pub struct TrialFolder {
    outputs: Outputs,
    object: PathBuf,
}

impl TrialFolder {
    /// Writes the object into a new directory below the one for temporary files.
    pub fn set_up(object: &[u8]) -> Result<Self, TrialError> {
        let failed = |path: &Path, error: io::Error| TrialError::Folder {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        let outputs = Outputs::new("trial").map_err(|(parent, e)| failed(&parent, e))?;
        let path = outputs.path("thalweg-preload.so");
        // The loader splits `LD_PRELOAD` at these characters.
        if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t')) {
            let why = "LD_PRELOAD does not support blanks or colons in a path; set TMPDIR to another directory";
            return Err(TrialError::Folder {
                path: path.display().to_string(),
                why: why.to_owned(),
            });
        }
        let written = fs::write(&path, object);
        // A program may start child processes as another user, which must be able to read the
        // object.
        let written =
            written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
        written.map_err(|e| failed(&path, e))?;
        Ok(Self { outputs, object: path })
    }

    pub fn object(&self) -> &Path {
        &self.object
    }

    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Creates a new file of counts, writable by every user.
    pub fn counts(&self) -> Result<PathBuf, String> {
        let path = self.outputs.path("counts");
        let written = fs::write(&path, blank());
        let written =
            written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o666)));
        written.map(|()| path.clone()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the file of counts.
    pub fn counted(&self) -> Result<Counts, String> {
        let path = self.outputs.path("counts");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Counts::read(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_there_can_be_read_and_goes() {
        let own = TrialFolder::set_up(b"object").unwrap();
        assert_eq!(fs::read(own.object()).unwrap(), b"object");
        own.counts().unwrap();
        assert_eq!(own.counted().unwrap(), Counts::default());
        let folder = own.object().parent().unwrap().to_owned();
        drop(own);
        assert!(!folder.exists());
    }
}
