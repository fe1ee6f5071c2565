//! Arguments that several commands share.

use clap::{ValueEnum, builder::FalseyValueParser};

mod abbreviated;
mod choice;
mod durable;
mod environment;
mod given;
mod hash;
mod list_file;
mod metric;
mod progress;
mod selection;

pub use abbreviated::{Abbreviated, find};
pub use choice::{MethodArgs, Preference};
pub use durable::FsyncArgs;
pub use environment::shown_in_help;
pub use given::GivenArgs;
pub use hash::HashName;
pub use list_file::ListFile;
pub use metric::{MetricArgs, words};
pub use progress::{ProgressArgs, ProgressWhen};
pub use selection::SelectionArgs;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// If standard output is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Parses a flag from an environment variable: `1`, `yes` and `true` set it. `0`, `no`, `false` and an empty value do
/// not.
pub fn flag() -> FalseyValueParser {
    FalseyValueParser::new()
}
