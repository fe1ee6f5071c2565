//! `thalweg report`: shows saved results as a page, as drawings, or as Markdown.

use clap::Args;
use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
};
use thalweg_core::atomic_file::write_file;
use thalweg_lab::{
    report::{Found, ReportError, articles, drawings, html, markdown, read_all, usual_folders},
    study::store::{self, ResultError},
};

use super::Subcommand;
use crate::{
    args::flag,
    exit::{Exit, Failure},
    output::{
        quantity,
        text::{complain, print},
    },
};

/// Shows saved study results as one HTML page, or as Markdown
///
/// The page says what wins here, by how much, what flips it, and what became of every claim. It is
/// one file: no script, nothing from the network, light and dark, fit for paper. Of several runs of
/// one study the newest is shown, the verdicts of all beside each other.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Results that `thalweg study` saved, or folders with some; without any, everything saved here
    #[arg(value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// Where to write it; `-` is standard output
    #[arg(short, long, value_name = "FILE", env = "THALWEG_OUTPUT", hide_env = true)]
    pub output: Option<PathBuf>,
    /// Write a page of drawings for each study there: every ratio, speed and sample; the short page only
    /// with --output
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "markdown",
        env = "THALWEG_DRAWINGS",
        hide_env = true
    )]
    pub drawings: Option<PathBuf>,
    /// Print Markdown, short enough for an issue
    #[arg(long, env = "THALWEG_MARKDOWN", hide_env = true, value_parser = flag())]
    pub markdown: bool,
    /// Print Markdown of the articles, one by one: what each has, where it is run, both verdicts on every
    /// machine, the sizes left out
    #[arg(long, conflicts_with_all = ["markdown", "drawings"])]
    pub articles: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg report -o report.html                                everything saved here
  thalweg report --drawings pages                              a page of drawings for each study
  thalweg report studies/results/host/2026-11-22/002.json -o 002.html
  thalweg report --articles -o articles.md studies/results     what each article has, and both verdicts
  thalweg report --markdown studies/results/host/2026-11-22 | gh issue comment 7 -F -";

impl Subcommand for ReportArgs {
    fn run(&self, _color: bool) -> Result<Exit, Failure> {
        let output = self.output.as_deref().filter(|path| *path != Path::new("-"));
        if output.is_none()
            && self.output.is_none()
            && !self.markdown
            && !self.articles
            && self.drawings.is_none()
            && std::io::stdout().is_terminal()
        {
            let message = "a page would fill the terminal: name a file with -o report.html, or use --markdown";
            return Err(Failure::new(Exit::Usage, message));
        }
        let found = find(&self.results)?;
        for reason in &found.passed_over {
            complain(&format!("passed over: {reason}"));
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

fn write_report(args: &ReportArgs, output: Option<&Path>, found: &Found) -> Result<(), Failure> {
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

fn write_drawings(folder: &Path, found: &Found) -> Result<(), Failure> {
    let pages = drawings(&found.inputs).map_err(failure)?;
    fs::create_dir_all(folder)
        .map_err(|e| Failure::of_io("mkdir", &folder.display().to_string(), &e))?;
    pages.iter().try_for_each(|page| write(&folder.join(&page.name), &page.html))
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

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_file(path, text.as_bytes()).map_err(|error| {
        let length = quantity::exact(text.len() as u64);
        let mut failure = Failure::of_destination(error, path);
        failure.message = format!("{} (a report of {length} was to be written)", failure.message);
        failure
    })
}
