//! One file per command.

mod completions;
mod copy;
mod doctor;
mod list;
mod man;
mod pipe;
mod plan;
mod stream;
mod study;

use crate::{
    args::{Cli, Command},
    exit::{Exit, Failure},
    output::paint,
};

/// Runs the command.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let color = || paint::wanted(cli.color);
    match cli.command {
        Command::Copy(args) => copy::run(&args, color()),
        Command::Pipe(args) => pipe::run(&args),
        Command::Plan(args) => plan::run(&args, color()),
        Command::Doctor(args) => doctor::run(&args, color()),
        Command::List(args) => list::run(&args, color()),
        Command::Study(args) => study::run(&args, color()),
        Command::Helper(args) => {
            // It answers for itself: on stdout to the one that started it, on stderr to people.
            std::process::exit(thalweg_lab::helper::run(&args.words));
        }
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
