//! The option `--fsync`, identical in all commands that write files.

use clap::{Args, ValueEnum};
use thalweg_core::atomic_file::Fsync;

/// Data that reaches stable storage.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FsyncArgs {
    /// When to write data to stable storage
    #[arg(long, value_name = "WHEN", env = "THALWEG_FSYNC", hide_env = true)]
    #[arg(value_enum, default_value_t = FsyncWhen::Auto)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub fsync: FsyncWhen,
}

/// When to sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FsyncWhen {
    /// Sync the data of a file before it replaces another file
    #[default]
    Auto,
    /// Sync everything before the command ends
    #[value(alias = "file", alias = "dir")]
    Always,
    /// Sync nothing: the kernel decides when to write
    #[value(alias = "none")]
    Never,
}

impl FsyncArgs {
    /// Returns the value as it is written on a command line.
    pub fn name(self) -> &'static str {
        match self.fsync {
            FsyncWhen::Auto => "auto",
            FsyncWhen::Always => "always",
            FsyncWhen::Never => "never",
        }
    }

    /// Converts to the library's type.
    pub fn wanted(self) -> Fsync {
        match self.fsync {
            FsyncWhen::Auto => Fsync::Auto,
            FsyncWhen::Always => Fsync::Always,
            FsyncWhen::Never => Fsync::Never,
        }
    }
}
