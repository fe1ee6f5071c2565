//! `thalweg completions`.

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
#[cfg(feature = "lab")]
use thalweg_lab::study::carried;

use super::{Cli, Subcommand};
use crate::{
    exit::{CommandFailure, Exit},
    output::text::print,
};

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish")]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}

impl Subcommand for CompletionsArgs {
    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let mut script = Vec::new();
        let mut command = with_studies(Cli::command());
        clap_complete::generate(self.shell, &mut command, "thalweg", &mut script);
        if self.shell == Shell::Fish {
            // For fish, clap generates no values of positional arguments, so this code adds the identifiers of the
            // studies.
            let ids: Vec<&str> = study_ids().collect();
            if !ids.is_empty() {
                let line = format!(
                    "complete -c thalweg -n \"__fish_thalweg_using_subcommand study\" -a \"{} all\"\n",
                    ids.join(" ")
                );
                script.extend(line.into_bytes());
            }
        }
        print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}

#[cfg(feature = "lab")]
fn study_ids() -> impl Iterator<Item = &'static str> {
    carried::ids()
}

#[cfg(not(feature = "lab"))]
fn study_ids() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

/// Completes the identifiers of studies. File names complete as well: the shell offers them if no identifier matches.
#[cfg(feature = "lab")]
fn with_studies(command: Command) -> Command {
    let ids = clap::builder::PossibleValuesParser::new(study_ids().chain(["all"]));
    command.mut_subcommand("study", |study| study.mut_arg("studies", |arg| arg.value_parser(ids)))
}

#[cfg(not(feature = "lab"))]
fn with_studies(command: Command) -> Command {
    command
}
