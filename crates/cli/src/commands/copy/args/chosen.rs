//! Flags that select the parts of the sources to copy.

use clap::Args;
use std::{ffi::OsString, path::PathBuf};

const CHOSEN: &str = "Filters";

/// Patterns of what is left out, and a list of names.
#[derive(Args, Debug, Default)]
pub struct FilterArgs {
    /// Exclude entries that match this pattern, in the syntax of .gitignore
    ///
    /// Examples: '*.o', /build, dir/, '!keep'. The last matching pattern decides.
    #[arg(long, value_name = "PATTERN", help_heading = CHOSEN)]
    pub exclude: Vec<OsString>,
    /// Read patterns from this file; `-` is standard input
    ///
    /// These patterns come before those of --exclude.
    #[arg(long, value_name = "FILE", help_heading = CHOSEN)]
    pub exclude_from: Vec<PathBuf>,
    /// Copy only the paths listed in this file; `-` is standard input
    ///
    /// The file has one path per line, relative to SRC. The copies have these paths below DST.
    #[arg(long, value_name = "FILE", help_heading = CHOSEN)]
    #[arg(conflicts_with_all = ["parents", "no_target_directory"])]
    pub files_from: Option<PathBuf>,
    /// Lines of --files-from and --exclude-from end with NUL, not newline
    #[arg(short = '0', long, help_heading = CHOSEN)]
    pub from0: bool,
}

impl FilterArgs {
    /// Returns `true` if only a part of SRC is copied.
    pub fn is_part(&self) -> bool {
        self.files_from.is_some() || !self.exclude.is_empty() || !self.exclude_from.is_empty()
    }
}
