//! Listens at PATH and prints what arrives.

use std::process::ExitCode;
use thalweg::channel::{Address, Consumer, Error, Listener, Options};

fn receive(path: String) -> Result<(), Error> {
    let listener = Listener::bind(&Address::at(path))?;
    let mut consumer = Consumer::open(listener.accept()?, &Options::default())?;
    loop {
        match consumer.receive() {
            Ok(message) => println!("Rust received: {}", String::from_utf8_lossy(&message)),
            Err(Error::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn main() -> ExitCode {
    match receive(std::env::args().nth(1).expect("usage: receive PATH")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
