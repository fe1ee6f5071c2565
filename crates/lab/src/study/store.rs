//! Where study files are found, and where results are kept.

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_core::profile::Machine;

use super::{
    file::Study,
    result::{ClaimVerdict, StudyResult},
};
use crate::arms::Catalogue;

/// A larger file is not a study.
const LARGEST_STUDY: u64 = 4 << 20;
/// A larger file is not a result.
const LARGEST_RESULT: u64 = 1 << 30;

/// A study file that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The study.
    pub study: Study,
    /// Its text.
    pub text: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// A file that cannot be used, with the place where that shows.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct StoreError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl StoreError {
    fn of(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

impl Loaded {
    /// Reads and checks one study file.
    pub fn read(path: &Path, catalogue: &Catalogue) -> Result<Self, StoreError> {
        let text = read(path, LARGEST_STUDY)?;
        let study = Study::parse(&text, catalogue).map_err(|e| StoreError::of(path, e))?;
        Ok(Self { study, text, path: path.to_owned() })
    }

    /// Reads and checks every study file of a folder, in the order of their names.
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
                let reason = format!("id = {:?}: another file there has it too", one.study.id);
                *loaded = Err(StoreError::of(&one.path.clone(), reason));
            }
        }
        Ok(all)
    }
}

/// The folder of studies: `$THALWEG_STUDIES`, or `studies` here, or the installed one beside the
/// binary. The error names all three.
pub fn studies_folder() -> Result<PathBuf, String> {
    if let Some(told) = std::env::var_os("THALWEG_STUDIES").filter(|told| !told.is_empty()) {
        return Ok(PathBuf::from(told));
    }
    let installed = std::env::current_exe().ok().and_then(|exe| {
        let prefix = exe.parent()?.parent()?;
        Some(prefix.join("share/thalweg/studies"))
    });
    let candidates: Vec<PathBuf> =
        [Some(PathBuf::from("studies")), installed].into_iter().flatten().collect();
    candidates.iter().find(|folder| folder.is_dir()).cloned().ok_or_else(|| {
        let looked: Vec<String> = candidates.iter().map(|c| c.display().to_string()).collect();
        format!(
            "no folder of studies: neither $THALWEG_STUDIES is set, nor is there {}",
            looked.join(" or ")
        )
    })
}

/// Where results go unless told otherwise: `thalweg/studies` under the XDG state directory. `None`
/// without a home.
pub fn results_folder() -> Option<PathBuf> {
    let env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = env("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| env("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("thalweg/studies"))
}

/// A short name of this machine, without its owner's: processor, cores, kernel.
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

/// Saves a result as `FOLDER/MACHINE/DATE/STUDY.json`, whole or not at all; answers the path. An
/// earlier result of that second is not overwritten: the later one is `STUDY-2.json`, and so on.
pub fn save(result: &StudyResult, folder: &Path) -> Result<PathBuf, StoreError> {
    let date = result.protocol.began.replace(':', "");
    let folder = folder.join(machine_name()).join(date);
    fs::create_dir_all(&folder).map_err(|e| StoreError::of(&folder, e.to_string()))?;
    let text = to_text(result).map_err(|e| StoreError::of(&folder, e.to_string()))?;
    let temporary = folder.join(format!(".{}.{}", result.study, std::process::id()));
    let linked = fs::write(&temporary, text)
        .map_err(|e| StoreError::of(&temporary, e.to_string()))
        .and_then(|()| link(&temporary, &folder, &result.study));
    let _ = fs::remove_file(&temporary);
    linked
}

/// Gives a file the first name that is free: two runs of one study may have begun in one second.
fn link(file: &Path, folder: &Path, study: &str) -> Result<PathBuf, StoreError> {
    let names = (2..).map(|number| format!("{study}-{number}.json"));
    for name in std::iter::once(format!("{study}.json")).chain(names) {
        let path = folder.join(name);
        match fs::hard_link(file, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(StoreError::of(&path, e.to_string())),
            Ok(()) => return Ok(path),
        }
    }
    unreachable!("the numbers do not end")
}

/// Reads a saved result and refuses another schema.
pub fn load(path: &Path) -> Result<StudyResult, StoreError> {
    let text = read(path, LARGEST_RESULT)?;
    parse_result(text.as_bytes()).map_err(|e| StoreError::of(path, e))
}

/// A result from its text.
pub fn parse_result(text: &[u8]) -> Result<StudyResult, String> {
    let result: StudyResult = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if result.schema == 1 {
        Ok(result)
    } else {
        Err(format!("schema {} where 1 is understood", result.schema))
    }
}

/// What a list shows of a saved result.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The study's id.
    pub study: String,
    /// When it was run.
    pub began: String,
    /// Its preset.
    pub preset: String,
    /// The verdicts of its claims.
    pub verdicts: Vec<ClaimVerdict>,
    /// The file.
    pub path: PathBuf,
}

#[derive(Deserialize)]
struct Head {
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
    verdict: ClaimVerdict,
}

/// Every result below a folder, oldest first. What is no result is passed over.
pub fn saved(folder: &Path) -> Vec<Saved> {
    let files = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let machines = files(folder);
    let dates = machines.iter().flat_map(|machine| files(machine));
    let results = dates.flat_map(|date| files(&date));
    let mut found: Vec<Saved> = results.filter_map(|path| head_of(&path)).collect();
    found.sort_by(|a, b| (&a.began, &a.study).cmp(&(&b.began, &b.study)));
    found
}

fn head_of(path: &Path) -> Option<Saved> {
    if path.extension().is_none_or(|e| e != "json") {
        return None;
    }
    let head: Head = serde_json::from_str(&read(path, LARGEST_RESULT).ok()?).ok()?;
    // A list goes to a terminal, where a control character is a command.
    let shown = [&head.study, &head.protocol.began, &head.protocol.preset];
    if shown.into_iter().any(|text| text.chars().any(char::is_control)) {
        return None;
    }
    Some(Saved {
        study: head.study,
        began: head.protocol.began,
        preset: head.protocol.preset,
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
        return Err(StoreError::of(path, format!("{} bytes are too many", meta.len())));
    }
    fs::read_to_string(path).map_err(error)
}

/// A result as JSON in which each sample has one line.
pub fn to_text(result: &StudyResult) -> Result<String, serde_json::Error> {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Shallow::default());
    result.serialize(&mut serializer)?;
    text.push(b'\n');
    String::from_utf8(text).map_err(|e| serde_json::Error::io(io::Error::other(e)))
}

/// Levels of a result that get lines of their own: result, arms, arm, sessions, session, samples.
const DEEPEST: usize = 6;

/// Lines and blanks on the upper levels, none below.
#[derive(Default)]
struct Shallow {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

macro_rules! by_depth {
    ($($name:ident($($argument:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, to: &mut W $(, $argument: $kind)*) -> io::Result<()> {
            if self.depth <= DEEPEST {
                self.pretty.$name(to $(, $argument)*)
            } else {
                CompactFormatter.$name(to $(, $argument)*)
            }
        })*
    };
}

impl Formatter for Shallow {
    fn begin_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth <= DEEPEST {
            self.pretty.begin_array(to)
        } else {
            CompactFormatter.begin_array(to)
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < DEEPEST {
            self.pretty.end_array(to)
        } else {
            CompactFormatter.end_array(to)
        }
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth <= DEEPEST {
            self.pretty.begin_object(to)
        } else {
            CompactFormatter.begin_object(to)
        }
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < DEEPEST {
            self.pretty.end_object(to)
        } else {
            CompactFormatter.end_object(to)
        }
    }

    by_depth!(
        begin_array_value(first: bool),
        end_array_value(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value(),
    );
}

#[cfg(test)]
mod tests;
