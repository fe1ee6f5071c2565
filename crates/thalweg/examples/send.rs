//! Connects to PATH and sends a message.

use thalweg::channel::{Address, Error, Link, Options, Producer};

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).expect("usage: send PATH");
    let link = Link::connect(&Address::at(path))?;
    let mut producer = Producer::open(link, &Options::default())?;
    producer.send(b"hello from Rust")
}
