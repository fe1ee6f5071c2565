//! `thalweg report`: shows saved results as a page, as drawings, or as Markdown.

use clap::Args;
use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::write_file;
use thalweg_lab::{
    report::{
        FoundResults, ReportError, articles, drawings, html, markdown, read_all, usual_folders,
    },
    study::store::{self, ResultError},
};

use super::Subcommand;
use crate::{
    args::flag,
    exit::{CommandFailure, Exit},
    output::{
        quantity,
        text::{complain, print},
    },
};

/// Show saved study results as one HTML page or as Markdown
///
/// The page shows which method is fastest and by how much, which parameters change the result, and the verdict on every
/// claim. It is a single file without scripts or network access. For each study, it shows the newest run and the
/// verdicts of all runs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Result files or directories of `thalweg study` [default: all saved results]
    #[arg(value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// Write to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", env = "THALWEG_OUTPUT", hide_env = true)]
    pub output: Option<PathBuf>,
    /// Write a page of drawings for each study to this directory
    ///
    /// The drawings show every ratio and speed. With this option, the short page is written only if you add --output.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "markdown",
        env = "THALWEG_DRAWINGS",
        hide_env = true
    )]
    pub drawings: Option<PathBuf>,
    /// Print Markdown for an issue
    #[arg(long, env = "THALWEG_MARKDOWN", hide_env = true, value_parser = flag())]
    pub markdown: bool,
    /// Print Markdown about each article: contents, studies and verdicts on every machine
    #[arg(long, conflicts_with_all = ["markdown", "drawings"])]
    pub articles: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg report -o report.html    all saved results
  thalweg report --drawings pages  a page of drawings for each study
  thalweg report studies/results/host/2026-11-22/002.json -o 002.html
  thalweg report --articles -o articles.md studies/results
  thalweg report --markdown studies/results/host/2026-11-22 > comment.md";

impl Subcommand for ReportArgs {
    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let output = self.output.as_deref().filter(|path| *path != Path::new("-"));
        if output.is_none()
            && self.output.is_none()
            && !self.markdown
            && !self.articles
            && self.drawings.is_none()
            && std::io::stdout().is_terminal()
        {
            let message = "standard output is a terminal";
            return Err(CommandFailure::new(Exit::Usage, message)
                .hint("write a file with -o report.html, or use --markdown"));
        }
        let found = find(&self.results)?;
        for reason in &found.passed_over {
            complain(&format!("skipped: {reason}"));
        }
        if let Some(folder) = &self.drawings {
            write_drawings(folder, &found)?;
        }
        if self.drawings.is_none() || self.output.is_some() {
            write_report(self, output, &found)?;
        }
        Ok(if found.passed_over.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn write_report(
    args: &ReportArgs,
    output: Option<&Path>,
    found: &FoundResults,
) -> Result<(), CommandFailure> {
    let text = match (args.markdown, args.articles) {
        (true, _) => markdown(&found.inputs),
        (_, true) => articles(&found.inputs),
        _ => html(&found.inputs).map_err(failure)?,
    };
    match output {
        Some(path) => write(path, &text),
        None => print(&text),
    }
}

fn write_drawings(folder: &Path, found: &FoundResults) -> Result<(), CommandFailure> {
    let pages = drawings(&found.inputs).map_err(failure)?;
    fs::create_dir_all(folder)
        .map_err(|e| CommandFailure::of_io("mkdir", &folder.display().to_string(), &e))?;
    pages.iter().try_for_each(|page| write(&folder.join(&page.name), &page.html))
}

fn find(named: &[PathBuf]) -> Result<FoundResults, CommandFailure> {
    if !named.is_empty() {
        return read_all(named).map_err(failure);
    }
    let folders = usual_folders();
    if folders.is_empty() {
        let place =
            store::results_folder().map_or(String::new(), |f| format!(" in {}", f.display()));
        return Err(CommandFailure::new(Exit::Usage, format!("no saved results{place}"))
            .hint("run `thalweg study`, or name result files"));
    }
    read_all(&folders).map_err(failure)
}

fn failure(error: ReportError) -> CommandFailure {
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
            CommandFailure::of_io("open", &path.display().to_string(), &error)
        }
        other => CommandFailure::new(exit, other.to_string()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CommandFailure> {
    write_file(path, text.as_bytes()).map_err(|error| {
        let length = quantity::exact(text.len() as u64);
        let mut failure = CommandFailure::of_destination(error, path);
        failure.message = format!("{} (report of {length})", failure.message);
        failure
    })
}
