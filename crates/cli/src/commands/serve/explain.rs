//! `thalweg serve --explain`: explains how one file would be sent.

use std::path::{Path, PathBuf};
use thalweg_core::quantity::bytes;
use thalweg_serve::server::{ONE_SEND, ServeOptions, size_of};

use super::ServeArgs;
use crate::{
    commands::{Subcommand, plan::PlanArgs},
    exit::{CommandFailure, Exit},
    output::text::print,
};

/// Prints the explanation. Fails if the file would not be served.
pub fn run(serve: &ServeArgs, path: &Path, color: bool) -> Result<Exit, CommandFailure> {
    let options = ServeOptions { follow: serve.follow.into(), ..ServeOptions::new(&serve.root) };
    let failed = |error: String| CommandFailure::new(Exit::Failed, error);
    let size = size_of(&options, path).map_err(|error| failed(error.to_string()))?;
    if size <= ONE_SEND as u64 {
        print(&format!(
            "the server sends the response header and the file ({}) with one system call\n",
            bytes(size)
        ))?;
        return Ok(Exit::Done);
    }
    let source = if serve.root.is_dir() { serve.root.join(path) } else { serve.root.clone() };
    let plan = PlanArgs {
        source,
        sink: PathBuf::from("tcp:"),
        size: None,
        choice: serve.choice.clone(),
        verbose: false,
        json: false,
        stepwise: true,
    };
    plan.run(color)
}
