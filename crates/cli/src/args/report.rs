//! Arguments of `thalweg report`.

use clap::Args;
use std::path::PathBuf;

use super::flag;

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
}

const EXAMPLES: &str = "\
Examples:
  thalweg report -o report.html                                everything saved here
  thalweg report --drawings pages                              a page of drawings for each study
  thalweg report studies/results/host/2026-11-22/002.json -o 002.html
  thalweg report --markdown studies/results/host/2026-11-22 | gh issue comment 7 -F -";
