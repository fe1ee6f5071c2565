//! One file per command.

mod compare;
mod completions;
mod copy;
mod doctor;
mod list;
mod man;
mod manifest;
mod pipe;
mod plan;
mod receive;
mod report;
mod send;
mod stream;
mod study;
mod transfer_report;
mod trial;
mod tune;
mod verify;

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
        Command::Send(args) => send::run(&args),
        Command::Receive(args) => receive::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Manifest(args) => manifest::run(&args),
        Command::Plan(args) => plan::run(&args, color()),
        Command::Tune(args) => tune::run(&args, color()),
        Command::Doctor(args) => doctor::run(&args, color()),
        Command::Report(args) => report::run(&args),
        Command::List(args) => list::run(&args, color()),
        Command::Compare(args) => compare::run(&args, color()),
        Command::Trial(args) => trial::run(&args, color()),
        Command::Study(args) => study::run(&args, color()),
        Command::Helper(args) => {
            // It answers for itself: on stdout to the one that started it, on stderr to people.
            std::process::exit(thalweg_lab::helper::run(&args.words));
        }
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
