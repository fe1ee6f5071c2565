//! Options for progress output.

use clap::{Args, ValueEnum};

use super::flag;
use crate::stdio;

/// Options for progress and summaries.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct ProgressArgs {
    /// When to show progress on standard error
    #[arg(long, value_name = "WHEN", env = "THALWEG_PROGRESS", hide_env = true)]
    #[arg(value_enum, default_value_t = ProgressWhen::Auto, default_missing_value = "always")]
    #[arg(num_args = 0..=1, require_equals = true)]
    pub progress: ProgressWhen,
    /// Print only errors
    #[arg(short, long, env = "THALWEG_QUIET", hide_env = true, value_parser = flag())]
    pub quiet: bool,
    /// Print one JSON object at the end, to standard error if standard output is the destination
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

impl ProgressArgs {
    /// Returns `true` if progress and summaries are printed: standard error is a terminal, or the user asked for
    /// them.
    pub fn is_watched(self) -> bool {
        let shown = match self.progress {
            ProgressWhen::Auto => stdio::is_error_terminal(),
            ProgressWhen::Always => true,
            ProgressWhen::Never | ProgressWhen::Json => false,
        };
        shown && !self.quiet
    }

    /// Returns `true` if the command prints anything but errors, in any format.
    pub fn reports(self) -> bool {
        self.json || self.progress == ProgressWhen::Json || self.is_watched()
    }
}

/// When to show progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressWhen {
    /// If standard error is a terminal
    #[default]
    Auto,
    /// Always: a bar on a terminal, otherwise lines
    Always,
    /// Never
    Never,
    /// Always, as one JSON object per line
    Json,
}
