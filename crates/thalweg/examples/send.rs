//! Connects to PATH and sends a message.

use std::process::ExitCode;
use thalweg::channel::{Address, Error, Link, Options, Producer};

fn send(path: String) -> Result<(), Error> {
    let link = Link::connect(&Address::at(path))?;
    Producer::open(link, &Options::default())?.send(b"hello from Rust")
}

fn main() -> ExitCode {
    match send(std::env::args().nth(1).expect("usage: send PATH")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
