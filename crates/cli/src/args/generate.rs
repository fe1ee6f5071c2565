//! Arguments of the commands that write manuals and completions.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

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

/// Shows the manual page, or writes all of them into a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg man
  thalweg man /usr/local/share/man/man1
  thalweg man . && man ./thalweg.1")]
pub struct ManArgs {
    /// Where to write them; it is made if it is not there
    pub folder: Option<PathBuf>,
}
