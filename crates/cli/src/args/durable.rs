//! The option `--fsync`, identical in all commands that write files.

use clap::{Args, ValueEnum};
use thalweg_core::atomic_file::Fsync;

/// What reaches stable storage.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FsyncArgs {
    /// What a power cut must not undo: with `auto`, a file that is replaced has the old contents or the new; with
    /// `always`, everything is on stable storage when the command ends
    #[arg(long, value_name = "WHEN", env = "THALWEG_FSYNC", hide_env = true)]
    #[arg(value_enum, default_value_t = FsyncWhen::Auto)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub fsync: FsyncWhen,
}

/// When to sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FsyncWhen {
    /// Data that replaces a file, before it takes the name
    #[default]
    Auto,
    /// Data, attributes, names and directories, before the command ends
    #[value(alias = "file", alias = "dir")]
    Always,
    /// Nothing: the kernel writes when it likes
    #[value(alias = "none")]
    Never,
}

impl FsyncArgs {
    /// Converts to the library's type.
    pub fn wanted(self) -> Fsync {
        match self.fsync {
            FsyncWhen::Auto => Fsync::Auto,
            FsyncWhen::Always => Fsync::Always,
            FsyncWhen::Never => Fsync::Never,
        }
    }
}
