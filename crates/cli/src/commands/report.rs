//! `thalweg report`: saved results as a page or as Markdown.

use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
};
use thalweg_lab::{
    report::{Found, ReportError, html, markdown, read_all, usual_folders},
    study::store::{self, ResultError},
};

use crate::{
    args::ReportArgs,
    exit::{Exit, Failure},
    output::{
        text::{complain, print},
        units,
    },
};

/// Writes the report.
pub fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if output.is_none()
        && args.output.is_none()
        && !args.markdown
        && std::io::stdout().is_terminal()
    {
        let message =
            "a page would fill the terminal: name a file with -o report.html, or use --markdown";
        return Err(Failure::new(Exit::Usage, message));
    }
    let found = find(&args.results)?;
    for reason in &found.passed_over {
        complain(&format!("passed over: {reason}"));
    }
    let text = if args.markdown {
        markdown(&found.inputs)
    } else {
        html(&found.inputs).map_err(failure)?
    };
    match output {
        Some(path) => write(path, &text)?,
        None => print(&text)?,
    }
    Ok(if found.passed_over.is_empty() { Exit::Done } else { Exit::Failed })
}

fn find(named: &[PathBuf]) -> Result<Found, Failure> {
    if !named.is_empty() {
        return read_all(named).map_err(failure);
    }
    let folders = usual_folders();
    if folders.is_empty() {
        let place =
            store::results_folder().map_or(String::new(), |f| format!(" in {}", f.display()));
        let message = format!(
            "there are no saved results{place}: run `thalweg study` first, or name the results to report"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    read_all(&folders).map_err(failure)
}

fn failure(error: ReportError) -> Failure {
    let exit = match &error {
        ReportError::Result(ResultError::Newer { .. }) => Exit::Unsupported,
        ReportError::Result(ResultError::NoResult { .. }) | ReportError::Nothing { .. } => {
            Exit::Usage
        }
        _ => Exit::Failed,
    };
    match error {
        ReportError::Unreadable { path, error }
        | ReportError::Result(ResultError::Unreadable { path, error }) => {
            Failure::of_io("open", &path.display().to_string(), &error)
        }
        other => Failure::new(exit, other.to_string()),
    }
}

/// Beside its place first, then by a rename: half a page never stands under the name. What is no
/// plain file (a device, a FIFO) is written as it is.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |call: &str, error: &std::io::Error| {
        let length = units::exact(text.len() as u64);
        let mut failure = Failure::of_io(call, &path.display().to_string(), error);
        failure.message = format!("{} (a report of {length} was to be written)", failure.message);
        failure
    };
    let special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let name = path.file_name().filter(|_| !special);
    let Some(name) = name else {
        return fs::write(path, text).map_err(|e| failed("write", &e));
    };
    // A link is followed: what it leads to is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or(name);
    let part = format!(".{}.thalweg-part.{}", name.to_string_lossy(), std::process::id());
    let part = path.with_file_name(part);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        failed("write", &error)
    })
}
