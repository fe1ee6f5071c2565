//! Listens at PATH and prints what arrives.

use thalweg::channel::{Address, Consumer, Error, Listener, Options};

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).expect("usage: receive PATH");
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
