//! Sharded copies: the work of one process, and the progress of all.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Duration;
use thalweg::CopyOptions;
use thalweg::fleet::{self, Duty, FleetEnd, FleetReport, Member, WorkerRecord};

use crate::files::{attended, failed, shares, wanted};

/// Largest number of unfinished files that are listed.
const MOST_LEFT: usize = 100;

/// Creates the directory of a fleet, or finds an existing one. Returns its path, or None if the
/// copy already exists.
#[pyfunction]
pub fn fleet_begin(
    py: Python<'_>,
    source: PathBuf,
    destination: PathBuf,
    options: &Bound<'_, PyDict>,
) -> PyResult<Option<PathBuf>> {
    // Rejects invalid options before anything is created.
    wanted(true, options)?;
    let begun = py.detach(|| fleet::begin(&source, &destination));
    begun.map_err(|error| failed(error.into()).raised(py))
}

/// Plans, moves or finishes a sharded copy, depending on the `duty` in `member`. Returns what this process did, and
/// the state of the whole copy.
#[pyfunction]
#[pyo3(signature = (source, destination, options, member, progress = None))]
pub fn fleet_work<'py>(
    py: Python<'py>,
    source: PathBuf,
    destination: PathBuf,
    options: &Bound<'py, PyDict>,
    member: &Bound<'py, PyDict>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (wanted, member) = (wanted(true, options)?, of(member)?);
    let (worked, changed) = attended(py, progress, move |watched| {
        let copy = thalweg::copy_tree(source, destination);
        copy.with(|options: &mut CopyOptions| *options = wanted).work(&member, watched)
    })?;
    match worked {
        Ok(report) => told(py, &report, changed),
        Err(error) => Err(failed(error).raised(py)),
    }
}

/// Returns the progress of the sharded copy into this directory; None if none is in progress.
#[pyfunction]
pub fn fleet_status(py: Python<'_>, destination: PathBuf) -> PyResult<Option<Bound<'_, PyDict>>> {
    let found = py.detach(|| fleet::status(&destination));
    let found = found.map_err(|error| failed(error.into()).raised(py))?;
    let Some(found) = found else { return Ok(None) };
    let told = PyDict::new(py);
    for (name, number) in [
        ("tasks", found.tasks),
        ("done", found.done),
        ("bytes", found.bytes),
        ("done_bytes", found.done_bytes),
        ("done_files", found.done_files),
    ] {
        told.set_item(name, number)?;
    }
    told.set_item("folder", found.folder)?;
    told.set_item("workers", workers(py, &found.workers)?)?;
    Ok(Some(told))
}

/// Returns the first files that no worker has moved completely, relative to the source.
#[pyfunction]
pub fn fleet_left(py: Python<'_>, destination: PathBuf) -> PyResult<Vec<PathBuf>> {
    let left = py.detach(|| fleet::left(&destination, MOST_LEFT));
    left.map_err(|error| failed(error.into()).raised(py))
}

/// Requests that all workers stop.
#[pyfunction]
pub fn fleet_stop(py: Python<'_>, destination: PathBuf) -> PyResult<()> {
    let stopped = py.detach(|| fleet::stop(&destination));
    stopped.map_err(|error| failed(error.into()).raised(py))
}

fn of(given: &Bound<'_, PyDict>) -> PyResult<Member> {
    let number = |name| given.get_item(name)?.map(|value| value.extract::<u64>()).transpose();
    let seconds = |name| -> PyResult<Duration> {
        let given = given.get_item(name)?.map(|value| value.extract::<f64>()).transpose()?;
        Ok(Duration::try_from_secs_f64(given.unwrap_or_default()).unwrap_or(Duration::MAX))
    };
    let small =
        |name| Ok::<_, PyErr>(number(name)?.unwrap_or_default().min(u32::MAX.into()) as u32);
    let mut member = Member::new(small("rank")?, small("size")?, Duration::ZERO);
    if let Some(bytes) = number("task_bytes")? {
        member.task_bytes = bytes;
    }
    member.began = number("began")?;
    let duty = given.get_item("duty")?.map(|value| value.extract::<String>()).transpose()?;
    member.duty = match duty.as_deref() {
        Some("plan") => Duty::Plan,
        Some("move") => {
            Duty::Move { plan: number("plan")?.unwrap_or_default(), within: seconds("within")? }
        }
        Some("finish") => Duty::Finish,
        _ => return Err(PyTypeError::new_err("duty must be 'plan', 'move' or 'finish'")),
    };
    Ok(member)
}

fn told<'py>(
    py: Python<'py>,
    report: &FleetReport,
    changed: Vec<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    let end = match report.end {
        FleetEnd::Finished => "finished",
        FleetEnd::Others => "others",
        FleetEnd::There => "there",
        FleetEnd::Unfinished => "unfinished",
    };
    told.set_item("end", end)?;
    for (name, number) in [
        ("plan", report.plan),
        ("tasks", report.tasks),
        ("done", report.done),
        ("files", report.files),
        ("bytes", report.tree.bytes),
        ("verified", report.tree.verified.same),
        ("error_count", report.tree.error_count),
        ("changed_count", report.tree.changed),
    ] {
        told.set_item(name, number)?;
    }
    let halted = report.tree.halted.map(|halt| format!("{halt:?}").to_lowercase());
    told.set_item("halted", halted)?;
    told.set_item("changed", changed)?;
    let errors = report.tree.errors.iter().map(ToString::to_string);
    told.set_item("errors", errors.collect::<Vec<_>>())?;
    let paths = report.tree.errors.iter().filter_map(|error| error.path());
    told.set_item("failed", paths.collect::<Vec<_>>())?;
    let errno = report.tree.errors.first().and_then(|error| error.errno());
    told.set_item("errno", errno.map(|errno| errno.raw_os_error()))?;
    told.set_item("shares", shares(&report.tree))?;
    told.set_item("workers", workers(py, &report.workers)?)?;
    Ok(told)
}

fn workers<'py>(py: Python<'py>, all: &[WorkerRecord]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let one = |worker: &WorkerRecord| {
        let told = PyDict::new(py);
        told.set_item("host", &worker.host)?;
        for (name, number) in [
            ("process", u64::from(worker.pid)),
            ("rank", u64::from(worker.rank)),
            ("tasks", worker.tasks),
            ("bytes", worker.bytes),
        ] {
            told.set_item(name, number)?;
        }
        told.set_item("seconds", worker.seconds)?;
        let moved = worker.mechanisms.iter().map(|one| (&one.mechanism, one.bytes));
        told.set_item("shares", moved.collect::<Vec<_>>())?;
        told.set_item("lost", !worker.ended)?;
        Ok(told)
    };
    all.iter().map(one).collect()
}
