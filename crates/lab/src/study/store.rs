//! Finds study files and stores results.

mod lines;
mod results;
mod samples;

pub use lines::to_text;
pub use results::{ResultError, load, parse_result, rejudge, replace, save};
pub use samples::{csv, put_back};

use serde::Deserialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_core::{
    profile::Machine,
    trusted_file::{TrustError, check_directory},
};

use super::{
    carried,
    file::{GOAL, StudyFile},
    result::ClaimVerdict,
    tally::Tallies,
};
use crate::arms::Catalogue;

/// Maximum size of a study file, in bytes.
const LARGEST_STUDY: u64 = 4 << 20;
/// Maximum size of a result file and of its samples, in bytes.
pub(super) const LARGEST_RESULT: u64 = 1 << 30;

/// A study file that was read and parsed.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub study: StudyFile,
    pub text: String,
    pub path: PathBuf,
}

/// A file that cannot be used, with its path and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct StoreError {
    pub path: PathBuf,
    /// The reason, and what would be valid.
    pub reason: String,
}

impl StoreError {
    fn of(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }

    fn untrusted(error: &TrustError) -> Self {
        match error {
            TrustError::Io { path, source, .. } => Self::of(path, source.to_string()),
            TrustError::Untrusted { path, why } => {
                Self::of(path, format!("{why}; hint: use sudo -H, or another --save directory"))
            }
        }
    }
}

impl Loaded {
    /// Reads and checks one study file.
    pub fn read(path: &Path, catalogue: &Catalogue) -> Result<Self, StoreError> {
        let text = read(path, LARGEST_STUDY)?;
        let study = StudyFile::parse(&text, catalogue).map_err(|e| StoreError::of(path, e))?;
        Ok(Self { study, text, path: path.to_owned() })
    }

    /// Returns the hash by which a result identifies the text of its study: `xxh3:` and 16 hexadecimal digits.
    pub fn hash(&self) -> String {
        format!("xxh3:{:016x}", thalweg_kernels::xxh3(self.text.as_bytes()))
    }

    /// Returns the directory of the study file and its programs, as an absolute path, because sessions may have
    /// another working directory.
    pub fn beside(&self) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
    }

    /// Reads and validates every study file of a directory, sorted by name.
    pub fn folder(
        folder: &Path,
        catalogue: &Catalogue,
    ) -> Result<Vec<Result<Self, StoreError>>, StoreError> {
        let entries = fs::read_dir(folder).map_err(|e| StoreError::of(folder, e.to_string()))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
        paths.sort();
        let mut all: Vec<Result<Self, StoreError>> =
            paths.iter().map(|path| Self::read(path, catalogue)).collect();
        let mut ids = std::collections::BTreeSet::new();
        for loaded in &mut all {
            if let Ok(one) = loaded
                && !ids.insert(one.study.id.clone())
            {
                let reason = format!(
                    "id = {:?}: another file in this directory has this id too",
                    one.study.id
                );
                *loaded = Err(StoreError::of(&one.path.clone(), reason));
            }
        }
        Ok(all)
    }
}

/// Returns the directory of studies. Candidates in this order: `$THALWEG_STUDIES`, `studies` in the working
/// directory, the installed directory next to the binary, the studies embedded in the binary. The error names all of
/// them.
pub fn studies_folder() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("THALWEG_STUDIES").filter(|name| !name.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let installed = std::env::current_exe().ok().and_then(|exe| {
        let prefix = exe.parent()?.parent()?;
        Some(prefix.join("share/thalweg/studies"))
    });
    let candidates: Vec<PathBuf> =
        [Some(PathBuf::from("studies")), installed].into_iter().flatten().collect();
    if let Some(folder) = candidates.iter().find(|folder| folder.is_dir()) {
        // Studies name programs to run, and the user did not name this directory, so it must be trusted.
        let checked = check_directory(folder).map(|()| folder.clone());
        return checked.map_err(|error| {
            let path = folder.display();
            format!("{error}; hint: set THALWEG_STUDIES={path} to use it anyway")
        });
    }
    carried::folder().map_err(|reason| {
        let looked: Vec<String> = candidates.iter().map(|c| c.display().to_string()).collect();
        format!(
            "no directory of studies: {} does not exist, and the built-in studies cannot be written \
             ({reason}); set THALWEG_STUDIES",
            looked.join(" or ")
        )
    })
}

/// Returns the default directory for results: `thalweg/studies` below the XDG state directory. `None` if no home
/// directory is known.
pub fn results_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("studies"))
}

/// Returns the directory for unfinished runs; `None` if no home directory is known.
pub fn unfinished_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("unfinished-studies"))
}

fn state_folder() -> Option<PathBuf> {
    let env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = env("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| env("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("thalweg"))
}

/// Returns the reason not to use the results in a directory that the user did not name: another user can write to it.
pub fn distrust(folder: &Path) -> Option<TrustError> {
    check_directory(folder).err().filter(|error| matches!(error, TrustError::Untrusted { .. }))
}

/// Returns a short name of this machine that does not identify its owner: CPU model, number of cores, kernel.
pub fn machine_name() -> String {
    let machine = Machine::this();
    let fact = |key| machine.iter().find(|(name, _)| *name == key).map(|(_, value)| value);
    let (cpu, kernel) = (fact("cpu").unwrap_or("unknown"), fact("kernel").unwrap_or("unknown"));
    let name = format!("{cpu} {}c {kernel}", fact("cores").unwrap_or("0"));
    let mut slug = String::new();
    for letter in name.chars() {
        match letter.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() || (c == '.' && !slug.is_empty()) => slug.push(c),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(80);
    slug.trim_matches(['-', '.']).to_owned()
}

/// The fields of a saved result that the list shows.
#[derive(Clone, Debug)]
pub struct SavedResult {
    pub study: String,
    /// The start time of the run.
    pub began: String,
    pub preset: String,
    /// The verdicts of the claims of the study, as published.
    pub verdicts: Vec<ClaimVerdict>,
    pub tallies: Tallies,
    pub path: PathBuf,
}

#[derive(Deserialize)]
struct ResultHead {
    study: String,
    protocol: HeadProtocol,
    claims: Vec<HeadClaim>,
}

#[derive(Deserialize)]
struct HeadProtocol {
    began: String,
    preset: String,
}

#[derive(Deserialize)]
struct HeadClaim {
    #[serde(default)]
    kind: String,
    verdict: ClaimVerdict,
    wider: Option<HeadWider>,
}

#[derive(Deserialize)]
struct HeadWider {
    verdict: ClaimVerdict,
}

/// Returns every result below a directory, oldest first. Other files are skipped.
pub fn saved(folder: &Path) -> Vec<SavedResult> {
    let files = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let machines = files(folder);
    let dates = machines.iter().flat_map(|machine| files(machine));
    let results = dates.flat_map(|date| files(&date));
    let mut found: Vec<SavedResult> = results.filter_map(|path| head_of(&path)).collect();
    found.sort_by(|a, b| (&a.began, &a.study).cmp(&(&b.began, &b.study)));
    found
}

fn head_of(path: &Path) -> Option<SavedResult> {
    if path.extension().is_none_or(|e| e != "json") {
        return None;
    }
    let head: ResultHead = serde_json::from_str(&read(path, LARGEST_RESULT).ok()?).ok()?;
    // The list is printed to a terminal, which would interpret control characters.
    let shown = [&head.study, &head.protocol.began, &head.protocol.preset];
    if shown.into_iter().any(|text| text.chars().any(char::is_control)) {
        return None;
    }
    Some(SavedResult {
        study: head.study,
        began: head.protocol.began,
        preset: head.protocol.preset,
        tallies: Tallies::of_verdicts(head.claims.iter().map(|claim| {
            (claim.kind == GOAL, claim.verdict, claim.wider.as_ref().map(|wider| wider.verdict))
        })),
        verdicts: head.claims.into_iter().map(|claim| claim.verdict).collect(),
        path: path.to_owned(),
    })
}

fn read(path: &Path, most: u64) -> Result<String, StoreError> {
    let error = |e: io::Error| StoreError::of(path, e.to_string());
    let meta = fs::metadata(path).map_err(error)?;
    if !meta.is_file() {
        return Err(StoreError::of(path, "not a file"));
    }
    if meta.len() > most {
        return Err(StoreError::of(
            path,
            format!("the file has {} bytes, which is too large", meta.len()),
        ));
    }
    fs::read_to_string(path).map_err(error)
}

#[cfg(test)]
mod tests;
