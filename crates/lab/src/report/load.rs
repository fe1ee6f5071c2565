//! Finds and reads saved results, and the study files they belong to.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::study::{
    file::Study,
    result::StudyResult,
    store::{self, ResultError},
};

/// A folder of results is `MACHINE/DATE/STUDY.json`.
const DEEPEST: usize = 6;
/// Files looked at in one folder tree.
const MOST_FILES: usize = 10_000;

/// A result, where it was, and the study it is a run of.
#[derive(Clone, Debug)]
pub struct Input {
    pub result: StudyResult,
    /// The name of its file, for the reader.
    pub origin: String,
    /// The study file, if there is one near: the article's parameters and tables.
    pub study: Option<Study>,
}

/// What was found under the names that were given.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub inputs: Vec<Input>,
    /// Files in folders that were passed over though they looked like results, and why.
    pub passed_over: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// One of the files is none.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// It could not be read.
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A folder without one.
    #[error("{}: no results of `thalweg study` in this folder", path.display())]
    Nothing { path: PathBuf },
    /// Our own templates failed: a bug.
    #[error("the page could not be made: {0}")]
    Page(String),
}

/// Reads one result.
///
/// # Errors
/// It cannot be read, is no result, or has a schema that this version does not know.
pub fn read(path: &Path) -> Result<StudyResult, ReportError> {
    Ok(store::load(path)?)
}

/// The folders where results lie unless somebody named others: where `thalweg study` keeps them, and
/// those that come with the studies.
pub fn usual_folders() -> Vec<PathBuf> {
    let beside = store::studies_folder().ok().map(|folder| folder.join("results"));
    let all = [store::results_folder(), beside].into_iter().flatten();
    all.filter(|folder| store::distrust(folder).is_none() && !json_files(folder).is_empty())
        .collect()
}

/// Reads files, and all results in folders. In a folder, what cannot be used is passed over and
/// named; a file that was named itself must be a result.
///
/// # Errors
/// As for [`read`], and a folder in which there is none.
pub fn read_all(paths: &[PathBuf]) -> Result<Found, ReportError> {
    let mut found = Found::default();
    for path in paths {
        if path.is_dir() {
            read_folder(path, &mut found)?;
        } else {
            found.inputs.push(input(path, read(path)?));
        }
    }
    Ok(found)
}

fn read_folder(folder: &Path, found: &mut Found) -> Result<(), ReportError> {
    let unreadable = |error| ReportError::Unreadable { path: folder.to_owned(), error };
    fs::read_dir(folder).map_err(unreadable)?;
    let before = found.inputs.len();
    for path in json_files(folder) {
        match read(&path) {
            Ok(result) => found.inputs.push(input(&path, result)),
            Err(error) => found.passed_over.push(error.to_string()),
        }
    }
    if found.inputs.len() == before {
        return Err(ReportError::Nothing { path: folder.to_owned() });
    }
    Ok(())
}

/// Every file `*.json` below a folder, in the order of names; links to folders are not followed, and
/// pipes, whose end may never come, are not read.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        // A folder that cannot be read has no results for us.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && depth < DEEPEST {
                folders.push((path, depth + 1));
            } else if path.extension().is_some_and(|end| end == "json") && path.is_file() {
                files.push(path);
            }
            if files.len() >= MOST_FILES {
                break;
            }
        }
    }
    files.sort();
    files
}

fn input(path: &Path, result: StudyResult) -> Input {
    let study = study_of(path, &result.study);
    Input { result, origin: path.display().to_string(), study }
}

/// The study of this id in a folder `studies` that the result lies in, or where `thalweg study` looks.
fn study_of(path: &Path, id: &str) -> Option<Study> {
    let full = fs::canonicalize(path).ok()?;
    let above = full.ancestors().filter(|folder| folder.ends_with("studies"));
    let above = above.map(Path::to_owned).chain(store::studies_folder().ok());
    above.into_iter().find_map(|folder| study_in(&folder, id))
}

fn study_in(folder: &Path, id: &str) -> Option<Study> {
    let files = fs::read_dir(folder).ok()?.flatten().take(MOST_FILES).map(|entry| entry.path());
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    let files = files.filter(|path| is_toml(path) && path.is_file());
    files
        .filter_map(|path| toml::from_str(&fs::read_to_string(path).ok()?).ok())
        .find(|study: &Study| study.id == id)
}
