//! Creates a template for a study: a complete study file that runs, a program in C, and the header with the worker
//! protocol.

use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::{Destination, DestinationError};

use super::{carried, file::is_id};

const STUDY: &str = include_str!("new/study.toml");
const PROGRAM: &[u8] = include_bytes!("new/program.c");
const HEADER: &str = "worker.h";

/// The reason why a template was not written.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The name is invalid, or a file of the name exists.
    #[error("{0}")]
    Usage(String),
    #[error("{}: {error}", path.display())]
    Write { path: PathBuf, error: DestinationError },
}

/// Writes the template. `at` is the name or the path of the study. Existing files are never overwritten, and an
/// existing header is used unchanged. Returns the paths of the new files, the study first. After an error, no new file
/// remains.
pub fn new(at: &Path) -> Result<Vec<PathBuf>, NewError> {
    let path = if at.extension().is_some_and(|e| e == "toml") {
        at.to_owned()
    } else {
        let mut name = at.as_os_str().to_owned();
        name.push(".toml");
        PathBuf::from(name)
    };
    let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    if !is_id(&id) {
        return Err(NewError::Usage(format!(
            "{id:?}: the name of a study consists of lower-case letters, digits and -"
        )));
    }
    let program = path.with_extension("c");
    for there in [&path, &program] {
        if there.symlink_metadata().is_ok() {
            return Err(exists(there));
        }
    }
    let study = STUDY.replace("@ID@", &id);
    let mut files = vec![(path.clone(), study.as_bytes()), (program, PROGRAM)];
    let header = path.with_file_name(HEADER);
    if header.symlink_metadata().is_err() {
        let text = carried::program(HEADER);
        let missing = || NewError::Usage("worker.h is not included in this build".to_owned());
        files.push((header, text.ok_or_else(missing)?));
    }
    let mut written: Vec<PathBuf> = Vec::new();
    // The study is written last: if it exists, the files that it needs exist too.
    for (path, bytes) in files.into_iter().rev() {
        if let Err(error) = write(&path, bytes) {
            for path in written {
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
        written.push(path);
    }
    written.reverse();
    Ok(written)
}

fn exists(path: &Path) -> NewError {
    NewError::Usage(format!("{} already exists", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), NewError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (folder, name) = (folder.unwrap_or(Path::new(".")), path.file_name().unwrap_or_default());
    let written = Destination::in_folder(folder, name, false).and_then(|mut file| {
        file.write(bytes, &|| Ok(()))?;
        file.publish()
    });
    written.map_err(|error| match error {
        DestinationError::Exists => exists(path),
        error => NewError::Write { path: path.to_owned(), error },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arms::CATALOGUE, study::store::Loaded};

    #[test]
    fn a_new_study_is_one_and_nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let made = new(&folder.path().join("my-copy")).unwrap();
        let names: Vec<_> =
            made.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["my-copy.toml", "my-copy.c", "worker.h"]);
        let loaded = Loaded::read(&made[0], &CATALOGUE).unwrap();
        assert_eq!(
            (loaded.study.id.as_str(), loaded.study.claims[0].id.as_str()),
            ("my-copy", "my-copy.1")
        );
        // The program opens both files each time and overwrites the destination. The mechanisms must do the same, so
        // `fresh` is false.
        let table: toml::Table = fs::read_to_string(&made[0]).unwrap().parse().unwrap();
        let arms = table["arm"].as_array().unwrap();
        let transfers = arms.iter().filter(|arm| arm["work"].as_str() == Some("transfer"));
        let states = transfers.map(|arm| arm["with"].get("fresh").and_then(toml::Value::as_bool));
        assert_eq!(states.collect::<Vec<_>>(), [Some(false); 2]);
        let again = new(&made[0]).unwrap_err().to_string();
        assert!(again.ends_with("my-copy.toml already exists"), "{again}");
        fs::write(&made[2], "own").unwrap();
        new(&folder.path().join("second.toml")).unwrap();
        assert_eq!(fs::read(&made[2]).unwrap(), b"own");
        for bad in ["My", "all", "a b", ""] {
            let error = new(&folder.path().join(bad)).unwrap_err().to_string();
            assert!(error.contains("the name of a study consists"), "{error}");
        }
        let error = new(&folder.path().join("no/such")).unwrap_err();
        assert!(matches!(error, NewError::Write { .. }), "{error}");
    }
}
