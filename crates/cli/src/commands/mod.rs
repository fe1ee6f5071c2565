//! One file per command.

mod completions;
mod copy;
mod doctor;
mod handover;
mod landing;
mod list;
mod man;
mod pipe;
mod plan;
mod receive;
mod send;
mod stream;

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
        Command::Plan(args) => plan::run(&args, color()),
        Command::Doctor(args) => doctor::run(&args, color()),
        Command::List(args) => list::run(&args, color()),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
