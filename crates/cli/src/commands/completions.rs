//! `thalweg completions`.

use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs},
    exit::{Exit, Failure},
    output::text::print,
};

/// Prints the completions of one shell.
pub fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "thalweg", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
