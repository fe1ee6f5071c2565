//! Copies of files and trees, and the list of mechanisms.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use thalweg::{Cancelled, CopyOptions, Error, Event, Events, Fsync, Hash, Progress, TreeReport};
use thalweg_core::MECHANISMS;

use crate::error::PyFailure;
use thalweg_core::cadence::CANCEL_CHECK;

/// State shared by the copying thread and the thread that waits for it: progress, and the request to cancel.
#[derive(Default)]
pub struct CopyWatch {
    far: Mutex<Progress>,
    /// The first sources that changed during the copy.
    changed: Mutex<Vec<PathBuf>>,
    is_cancelled: AtomicBool,
}

/// Largest number of changed sources that are stored.
const MOST_CHANGED: usize = 100;

impl Events for CopyWatch {
    fn event(&self, event: &Event<'_>) {
        let Event::Changed { source } = event else { return };
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.len() < MOST_CHANGED {
            changed.push(source.to_path_buf());
        }
    }

    fn progress(&self, progress: Progress) {
        *self.far.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        if self.is_cancelled.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }
}

/// Copies a file or a directory with its contents. Returns the numbers of the report.
#[pyfunction]
#[pyo3(signature = (source, destination, archive, options, progress))]
pub fn copied<'py>(
    py: Python<'py>,
    source: PathBuf,
    destination: PathBuf,
    archive: bool,
    options: &Bound<'py, PyDict>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let wanted = wanted(archive, options)?;
    let (outcome, _) = attended(py, progress, move |watched| {
        let copy = thalweg::copy_tree(source, destination);
        copy.with(|options| *options = wanted).run_watched(watched)
    })?;
    match outcome {
        Ok(report) => numbers(py, &report),
        Err(error) => Err(failed(error).raised(py)),
    }
}

/// Runs `work` in its own thread, while this thread calls `progress` and checks for signals. Returns the result, and
/// the sources that changed during the copy.
pub fn attended<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&CopyWatch) -> T + Send,
) -> PyResult<(T, Vec<PathBuf>)> {
    let watched = CopyWatch::default();
    let (mut seen, mut interrupt) = (Progress::default(), None);
    let (tell, mut told) = mpsc::channel::<()>();
    let outcome = thread::scope(|scope| {
        let watched = &watched;
        let work = move || {
            // Disconnects the channel, and so ends the loop below, when `work` returns or panics.
            let _tell = tell;
            work(watched)
        };
        let thread = thread::Builder::new().name("thalweg-copy".to_owned());
        let copying = thread.spawn_scoped(scope, work)?;
        loop {
            let heard;
            (told, heard) = py.detach(move || {
                let heard = told.recv_timeout(CANCEL_CHECK);
                (told, heard)
            });
            if heard == Err(mpsc::RecvTimeoutError::Disconnected) {
                break;
            }
            if interrupt.is_some() {
                continue;
            }
            let far = *watched.far.lock().unwrap_or_else(PoisonError::into_inner);
            let said = match progress {
                Some(tell) if far != seen => tell.call1((far.files, far.bytes)).map(drop),
                _ => Ok(()),
            };
            seen = far;
            if let Err(error) = said.and_then(|()| py.check_signals()) {
                watched.is_cancelled.store(true, Ordering::Relaxed);
                interrupt = Some(error);
            }
        }
        Ok::<_, PyErr>(copying.join())
    })?;
    if let Some(error) = interrupt {
        return Err(error);
    }
    let changed = watched.changed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(done) => Ok((done, changed)),
        Err(_) => Err(PyFailure::new("Error", "the copy thread ended without a result").raised(py)),
    }
}

/// Returns the mechanisms in the order of `thalweg list`, each as JSON.
#[pyfunction]
pub fn listed() -> Vec<String> {
    MECHANISMS.iter().map(|mechanism| mechanism.info().to_json().to_string()).collect()
}

/// Converts the named options of a copy.
pub fn wanted(archive: bool, options: &Bound<'_, PyDict>) -> PyResult<CopyOptions> {
    let mut wanted = if archive { CopyOptions::archive() } else { CopyOptions::default() };
    if !archive {
        wanted.recursive = true;
    }
    for (name, value) in options {
        match name.extract::<String>()?.as_str() {
            "resume" => wanted.resume = value.extract()?,
            "no_clobber" => wanted.no_clobber = value.extract()?,
            "one_file_system" => wanted.one_file_system = value.extract()?,
            "dry_run" => wanted.dry_run = value.extract()?,
            "threads" => wanted.jobs = value.extract()?,
            "limit" => wanted.limit = value.extract()?,
            "verify" => wanted.verify = one_of(&value, &HASHES)?,
            "fsync" => wanted.fsync = one_of(&value, &FSYNCS)?.unwrap_or_default(),
            other => return Err(PyTypeError::new_err(format!("copy has no option {other:?}"))),
        }
    }
    Ok(wanted)
}

const HASHES: [(&str, Hash); 3] =
    [("sha256", Hash::Sha256), ("blake3", Hash::Blake3), ("xxh3", Hash::Xxh3)];
const FSYNCS: [(&str, Fsync); 3] =
    [("never", Fsync::Never), ("auto", Fsync::Auto), ("always", Fsync::Always)];

/// Returns the value for a word; `None` for Python's None.
fn one_of<T: Copy>(value: &Bound<'_, PyAny>, words: &[(&str, T)]) -> PyResult<Option<T>> {
    let Some(word) = value.extract::<Option<String>>()? else { return Ok(None) };
    if let Some((_, meant)) = words.iter().find(|(known, _)| *known == word) {
        return Ok(Some(*meant));
    }
    let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
    Err(PyValueError::new_err(format!("{word:?} must be one of {}, or None", known.join(", "))))
}

fn numbers<'py>(py: Python<'py>, report: &TreeReport) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    for (name, number) in [
        ("files", report.files),
        ("dirs", report.dirs),
        ("links", report.links),
        ("specials", report.specials),
        ("bytes", report.bytes),
        ("cloned", report.cloned),
        ("resumed", report.resumed),
        ("skipped", report.skipped),
        ("verified", report.verified.same),
    ] {
        told.set_item(name, number)?;
    }
    told.set_item("seconds", report.seconds)?;
    told.set_item("cpu_seconds", report.cpu_seconds)?;
    told.set_item("shares", shares(report))?;
    Ok(told)
}

/// Returns the number of bytes that each mechanism moved.
pub fn shares(report: &TreeReport) -> Vec<(&'static str, u64)> {
    report.shares.iter().map(|share| (share.mechanism, share.bytes)).collect()
}

/// Converts an error into the contents of an exception.
pub fn failed(error: Error) -> PyFailure {
    let (moved, mechanism) = match &error {
        Error::Incomplete(report) => (report.bytes, report.main().map(|share| share.mechanism)),
        Error::Move { report, .. } => (report.bytes, None),
        _ => (0, None),
    };
    let errno = error.errno().map(|errno| errno.raw_os_error());
    let mechanism = mechanism.map(str::to_owned);
    PyFailure { errno, moved, mechanism, ..PyFailure::new("Error", error.to_string()) }
}
