//! Flags that select the parts of the sources to copy.

use clap::Args;
use std::{ffi::OsString, path::PathBuf};

const CHOSEN: &str = "What is copied of SRC";

/// Patterns of what is left out, and a list of names.
#[derive(Args, Debug, Default)]
pub struct Chosen {
    /// Leave out what matches, as a line of .gitignore in SRC would: '*.o', /build, dir/, '!kept';
    /// the last pattern that matches decides
    #[arg(long, value_name = "PATTERN", help_heading = CHOSEN)]
    pub exclude: Vec<OsString>,
    /// The same with every line of a file, before all --exclude; - is standard input
    #[arg(long, value_name = "FILE", help_heading = CHOSEN)]
    pub exclude_from: Vec<PathBuf>,
    /// Copy only what this file names, one path in SRC a line, and keep these paths below DST; - is
    /// standard input
    #[arg(long, value_name = "FILE", help_heading = CHOSEN)]
    #[arg(conflicts_with_all = ["parents", "no_target_directory"])]
    pub files_from: Option<PathBuf>,
    /// In these files a NUL ends a line, not a newline
    #[arg(short = '0', long, help_heading = CHOSEN)]
    pub from0: bool,
}

impl Chosen {
    /// Returns `true` if only a part of SRC is copied.
    pub fn is_part(&self) -> bool {
        self.files_from.is_some() || !self.exclude.is_empty() || !self.exclude_from.is_empty()
    }
}
