//! Finds and reads saved results and their study files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::study::{
    file::StudyFile,
    result::StudyResult,
    store::{self, ResultError},
};

/// Maximum depth of the search. Results are at `MACHINE/DATE/STUDY.json`.
const DEEPEST: usize = 6;
/// Maximum number of files to examine in one directory tree.
const MOST_FILES: usize = 10_000;

/// A result, its file name, and its study.
#[derive(Clone, Debug)]
pub struct ReportInput {
    pub result: StudyResult,
    /// The file name of the result, as the report shows it.
    pub origin: String,
    /// The study file, if one was found: the article's parameters and tables.
    pub study: Option<StudyFile>,
}

/// The results found under the given paths.
#[derive(Clone, Debug, Default)]
pub struct FoundResults {
    pub inputs: Vec<ReportInput>,
    /// Files that looked like results but were skipped, with the reason.
    pub passed_over: Vec<String>,
}

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file is not a usable result.
    #[error(transparent)]
    Result(#[from] ResultError),
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A directory without results.
    #[error("{}: no results of `thalweg study` in this directory", path.display())]
    Nothing { path: PathBuf },
    /// A built-in template failed, which is a bug.
    #[error("cannot create the page: {0}")]
    Page(String),
}

/// Reads one result.
///
/// # Errors
/// If the file cannot be read, is not a result, or has an unknown schema.
pub fn read(path: &Path) -> Result<StudyResult, ReportError> {
    Ok(store::load(path)?)
}

/// Returns the default directories of results: the directory to which `thalweg study` saves, and the one that comes
/// with the studies.
pub fn usual_folders() -> Vec<PathBuf> {
    let beside = store::studies_folder().ok().map(|folder| folder.join("results"));
    let all = [store::results_folder(), beside].into_iter().flatten();
    all.filter(|folder| store::distrust(folder).is_none() && !json_files(folder).is_empty())
        .collect()
}

/// Reads files, and all results in directories. In a directory, unusable files are skipped and listed; a file that is
/// named explicitly must be a result.
///
/// # Errors
/// As for [`read`], and if a directory contains no result.
pub fn read_all(paths: &[PathBuf]) -> Result<FoundResults, ReportError> {
    let mut found = FoundResults::default();
    for path in paths {
        if path.is_dir() {
            read_folder(path, &mut found)?;
        } else {
            found.inputs.push(input(path, read(path)?));
        }
    }
    Ok(found)
}

fn read_folder(folder: &Path, found: &mut FoundResults) -> Result<(), ReportError> {
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

/// Returns every `*.json` file below a directory, sorted by name. Symbolic links to directories are not followed.
/// FIFOs are skipped, because reading them may block.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        // Directories that cannot be read are skipped.
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

fn input(path: &Path, result: StudyResult) -> ReportInput {
    let study = study_of(path, &result.study);
    ReportInput { result, origin: path.display().to_string(), study }
}

/// Returns the study with this id, from a directory `studies` above the result, or from where `thalweg study`
/// searches.
fn study_of(path: &Path, id: &str) -> Option<StudyFile> {
    let full = fs::canonicalize(path).ok()?;
    let above = full.ancestors().filter(|folder| folder.ends_with("studies"));
    let above = above.map(Path::to_owned).chain(store::studies_folder().ok());
    above.into_iter().find_map(|folder| study_in(&folder, id))
}

fn study_in(folder: &Path, id: &str) -> Option<StudyFile> {
    let files = fs::read_dir(folder).ok()?.flatten().take(MOST_FILES).map(|entry| entry.path());
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    let files = files.filter(|path| is_toml(path) && path.is_file());
    files
        .filter_map(|path| toml::from_str(&fs::read_to_string(path).ok()?).ok())
        .find(|study: &StudyFile| study.id == id)
}
