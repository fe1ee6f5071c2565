//! `thalweg copy`.

use crate::{
    args::CopyArgs,
    exit::{Exit, Failure},
};

/// Copies files and trees.
pub fn run(args: &CopyArgs) -> Result<Exit, Failure> {
    let _ = args;
    Err(Failure::new(Exit::Unsupported, "copy is not part of this build yet"))
}
