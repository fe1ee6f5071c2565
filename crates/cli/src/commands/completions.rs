//! `thalweg completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Subcommand};
use crate::{
    exit::{Exit, Failure},
    output::text::print,
};

/// Prints the completions of a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish")]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

impl Subcommand for CompletionsArgs {
    fn run(&self, _color: bool) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "thalweg", &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
