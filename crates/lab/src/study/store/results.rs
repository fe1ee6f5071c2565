//! Stores a result in two files: `STUDY.json` with the findings, `STUDY.csv.gz` with the samples behind them.

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::Deserialize;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use thalweg_core::{
    atomic_file::{Destination, DestinationError, write_file},
    error::errno_name,
    trusted_file::make_directory,
};
use thalweg_sys::io::sync_filesystem;

use super::{LARGEST_RESULT, Loaded, StoreError, lines, machine_name, samples};
use crate::study::{
    evaluation,
    result::{ClaimEvidence, ClaimResult, RatioResult, StudyResult, StudyText},
};

/// The schema of a result that contains its samples, as printed by `--json`.
const WHOLE: u32 = 1;
/// The schema of a result with its samples in a separate file.
const APART: u32 = 2;

/// The reason why a file does not contain a usable result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// The file is something else or damaged.
    #[error("{}: not a result of `thalweg study`: {reason}", path.display())]
    NoResult { path: PathBuf, reason: String },
    /// A later version wrote the file.
    #[error("{}: schema {schema}, but this version reads {WHOLE} and {APART}: use the thalweg that wrote it, or a newer one", path.display())]
    Newer { path: PathBuf, schema: u64 },
}

/// Saves a result as `FOLDER/MACHINE/DATE/STUDY.json` with its samples in `STUDY.csv.gz`, and returns the path of the
/// JSON file. An existing result of the same second is not overwritten; the new one becomes `STUDY-2.json`, and so
/// on. Fails in a directory that another user can write. When this returns, the result survives a power failure, because
/// the caller then removes the sessions that it was made of.
pub fn save(result: &StudyResult, folder: &Path) -> Result<PathBuf, StoreError> {
    let date = result.protocol.began.replace(':', "");
    let folder = folder.join(machine_name()).join(date);
    make_directory(&folder).map_err(|error| StoreError::untrusted(&error))?;
    let opened = opened(&folder)?;
    let samples = samples::csv(std::slice::from_ref(result));
    let samples = compressed(&samples).map_err(|e| StoreError::of(&folder, e.to_string()))?;
    let more = (2..).map(|number| format!("{}-{number}", result.study));
    for name in std::iter::once(result.study.clone()).chain(more) {
        // The samples are written first: if the JSON file exists, the file that it names exists too.
        let beside = folder.join(format!("{name}.csv.gz"));
        if !write_new(&beside, &samples)? {
            continue;
        }
        let path = folder.join(format!("{name}.json"));
        let bare = without_samples(result, format!("{name}.csv.gz"));
        let text = lines::by_arms(&bare).map_err(|e| StoreError::of(&path, e.to_string()));
        match text.and_then(|text| write_new(&path, text.as_bytes())) {
            Ok(true) => {
                return make_durable(&opened, &path).map(|()| path.clone()).inspect_err(|_| {
                    let _ = fs::remove_file(&path);
                    let _ = fs::remove_file(&beside);
                });
            }
            // The name exists without samples: an older version stored results in a single file. The next name is
            // tried.
            Ok(false) => drop(fs::remove_file(&beside)),
            Err(error) => {
                let _ = fs::remove_file(&beside);
                return Err(error);
            }
        }
    }
    unreachable!("the numbers do not end")
}

/// Judges the saved samples of a result by the current text of its study, and writes the verdicts to its file. The
/// samples do not change. Returns the result before and after.
pub fn rejudge(path: &Path, by: &Loaded) -> Result<[StudyResult; 2], ResultError> {
    let before = load(path)?;
    let mut after = evaluation::judge_again(&by.study, &before);
    keep_digits(&before, &mut after);
    let ran = before.text.as_ref().and_then(|text| text.ran.clone());
    after.text = Some(StudyText { ran, judged: by.hash() });
    write_result(path, &after, samples_beside(path)?)?;
    Ok([before, after])
}

/// Replaces a result by one with more sessions. The new samples are written to a new file first, so that the result
/// always names complete samples.
pub fn replace(path: &Path, result: &StudyResult) -> Result<(), ResultError> {
    let Some(old) = samples_beside(path)? else { return write_result(path, result, None) };
    let error =
        |e: StoreError| ResultError::Unreadable { path: e.path, error: io::Error::other(e.reason) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let opened = opened(folder.unwrap_or(Path::new("."))).map_err(error)?;
    let samples = compressed(&samples::csv(std::slice::from_ref(result)));
    let samples = samples.map_err(|e| error(StoreError::of(path, e.to_string())))?;
    let names = (2..).map(|number| format!("{}-{number}.csv.gz", result.study));
    for name in std::iter::once(format!("{}.csv.gz", result.study)).chain(names) {
        if write_new(&path.with_file_name(&name), &samples).map_err(error)? {
            write_result(path, result, Some(name))?;
            make_durable(&opened, path).map_err(error)?;
            // A file that no result names does no harm.
            drop(fs::remove_file(path.with_file_name(old)));
            break;
        }
    }
    Ok(())
}

/// Writes a result, with its samples or with the name of the file that has them.
fn write_result(
    path: &Path,
    result: &StudyResult,
    samples: Option<String>,
) -> Result<(), ResultError> {
    let unwritable =
        |e: String| ResultError::Unreadable { path: path.to_owned(), error: io::Error::other(e) };
    let text = match samples {
        Some(name) => lines::by_arms(&without_samples(result, name)),
        None => lines::to_text(result),
    };
    let text = text.map_err(|e| unwritable(e.to_string()))?;
    let written = write_file(path, text.as_bytes());
    written.map_err(|e| unwritable(io::Error::from(e).to_string()))
}

/// Keeps the old figures if the new ones differ only in the last digits. Those of a logarithm differ between CPUs.
fn keep_digits(before: &StudyResult, after: &mut StudyResult) {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    for new in &mut after.ratios {
        let same = |old: &&RatioResult| {
            old.a == new.a && old.b == new.b && old.place == new.place && old.metric == new.metric
        };
        let Some(old) = before.ratios.iter().find(same).map(|old| old.ratio) else { continue };
        let pairs = [(old.ratio, new.ratio.ratio), (old.lo, new.ratio.lo), (old.hi, new.ratio.hi)];
        if pairs.into_iter().all(|(old, new)| near(old, new)) {
            new.ratio = old;
        }
    }
    for new in &mut after.claims {
        let Some(old) = before.claims.iter().find(|old| old.id == new.id) else { continue };
        let figures = |c: &ClaimResult| [c.measured, c.lo, c.hi];
        let same = |(old, new): (Option<f64>, Option<f64>)| match (old, new) {
            (Some(old), Some(new)) => near(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if figures(old).into_iter().zip(figures(new)).all(same) {
            [new.measured, new.lo, new.hi] = figures(old);
        }
        let known: Vec<&ClaimEvidence> = old
            .evidence
            .iter()
            .chain(&old.flips)
            .chain(old.wider.iter().flat_map(|wider| &wider.evidence))
            .collect();
        let wider = new.wider.iter_mut().flat_map(|wider| &mut wider.evidence);
        for one in new.evidence.iter_mut().chain(&mut new.flips).chain(wider) {
            let figures = |e: &ClaimEvidence| [e.measured, e.lo, e.hi];
            let alike = |old: &&&ClaimEvidence| {
                old.text == one.text && figures(old).into_iter().zip(figures(one)).all(same)
            };
            if let Some(old) = known.iter().find(alike) {
                [one.measured, one.lo, one.hi] = figures(old);
            }
        }
    }
}

/// Returns the file name of the samples of a result that [`load`] accepts; `None` if they are in the result itself.
fn samples_beside(path: &Path) -> Result<Option<String>, ResultError> {
    #[derive(Deserialize)]
    struct Named {
        schema: u32,
        samples: Option<String>,
    }
    let named: Result<Named, _> = serde_json::from_slice(&read(path)?);
    let no = |e: serde_json::Error| ResultError::NoResult {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    let named = named.map_err(no)?;
    Ok(named.samples.filter(|_| named.schema == APART))
}

/// Opens the directory of a result before its files are written, so that [`make_durable`] reports errors of write-back.
fn opened(folder: &Path) -> Result<File, StoreError> {
    File::open(folder).map_err(|error| StoreError::of(folder, error.to_string()))
}

/// Brings a result to stable storage: its files, and the names of new directories.
fn make_durable(folder: &File, path: &Path) -> Result<(), StoreError> {
    sync_filesystem(folder)
        .map_err(|errno| StoreError::of(path, format!("syncfs: {}", errno_name(errno))))
}

/// Writes a file atomically. Returns `false` if a file of that name exists.
fn write_new(path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let written = Destination::in_folder(folder, name, false).and_then(|mut file| {
        file.write(bytes, &|| Ok(()))?;
        file.publish()
    });
    match written {
        Ok(()) => Ok(true),
        Err(DestinationError::Exists) => Ok(false),
        Err(error) => Err(StoreError::of(path, io::Error::from(error).to_string())),
    }
}

/// Returns the result without samples, as it is saved next to the file with the samples.
pub(super) fn without_samples(result: &StudyResult, samples: String) -> StudyResult {
    let mut bare = StudyResult { schema: APART, samples: Some(samples), ..result.clone() };
    for session in bare.arms.iter_mut().flat_map(|arm| &mut arm.sessions) {
        session.samples.clear();
    }
    bare
}

pub(super) fn compressed(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// The fields that identify a file as a result.
#[derive(Deserialize)]
struct Label {
    study: Option<serde_json::Value>,
    schema: Option<serde_json::Value>,
}

/// Reads a saved result with its samples, from the same or a separate file. The returned result contains its samples.
pub fn load(path: &Path) -> Result<StudyResult, ResultError> {
    let no = |reason: String| ResultError::NoResult { path: path.to_owned(), reason };
    let text = read(path)?;
    let label: Label = serde_json::from_slice(&text).map_err(|e| no(e.to_string()))?;
    if label.study.is_none() {
        return Err(no("the file has no \"study\"".to_owned()));
    }
    let schema = label.schema.as_ref().and_then(serde_json::Value::as_u64);
    let schema = schema.ok_or_else(|| no("\"schema\" is not a version number".to_owned()))?;
    if schema > u64::from(APART) {
        return Err(ResultError::Newer { path: path.to_owned(), schema });
    }
    let mut result: StudyResult = serde_json::from_slice(&text).map_err(|e| no(e.to_string()))?;
    match result.schema {
        WHOLE => {}
        APART => {
            let name = result.samples.take().filter(|name| !name.contains('/'));
            let name = name.ok_or_else(|| {
                no("\"samples\" does not name a file in the directory of the result".to_owned())
            })?;
            let beside = path.with_file_name(&name);
            let csv = decompressed(&beside)?;
            let of_csv = |reason| ResultError::NoResult { path: beside.clone(), reason };
            samples::put_back(&csv, &mut result).map_err(of_csv)?;
            result.schema = WHOLE;
        }
        other => {
            return Err(no(format!("\"schema\" is {other}, which this version does not know")));
        }
    }
    Ok(result)
}

/// Parses a result from a file that contains its samples.
pub fn parse_result(text: &[u8]) -> Result<StudyResult, String> {
    let result: StudyResult = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if result.schema == WHOLE {
        Ok(result)
    } else {
        Err(format!("schema {} instead of {WHOLE}", result.schema))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ResultError> {
    let unreadable = |error| ResultError::Unreadable { path: path.to_owned(), error };
    let length = fs::metadata(path).map_err(unreadable)?.len();
    if length > LARGEST_RESULT {
        let reason =
            format!("the file has {length} bytes, but a result has at most {LARGEST_RESULT}");
        return Err(ResultError::NoResult { path: path.to_owned(), reason });
    }
    fs::read(path).map_err(unreadable)
}

fn decompressed(path: &Path) -> Result<String, ResultError> {
    let packed = read(path)?;
    let mut text = String::new();
    // A few compressed bytes may expand to more than fits into memory.
    let unpacked = GzDecoder::new(packed.as_slice()).take(LARGEST_RESULT).read_to_string(&mut text);
    match unpacked {
        Ok(length) if length as u64 == LARGEST_RESULT => {
            let reason = format!("the samples have {length} bytes or more, which is too large");
            Err(ResultError::NoResult { path: path.to_owned(), reason })
        }
        Ok(_) => Ok(text),
        Err(e) => Err(ResultError::NoResult { path: path.to_owned(), reason: e.to_string() }),
    }
}
