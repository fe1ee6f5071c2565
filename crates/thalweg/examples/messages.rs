//! Messages from one thread to another, as between processes.

use std::thread;
use thalweg::channel::{Address, Consumer, Error, Link, Listener, Options, Producer};

fn send(address: &Address) -> Result<(), Error> {
    let mut producer = Producer::open(Link::connect(address)?, &Options::default())?;
    producer.send(b"copied")?;
    let mut loan = producer.loan(8)?;
    loan.copy_from_slice(b"in place");
    loan.commit() // sends it; dropping it would discard it
}

fn main() -> Result<(), Error> {
    // A name for processes of this user (in XDG_RUNTIME_DIR). For a path, use `Address::at`.
    let address = Address::named("guide")?;
    let listener = Listener::bind(&address)?;
    let sender = thread::spawn(move || send(&address)); // usually another process, in Rust, C or Java
    let mut consumer = Consumer::open(listener.accept()?, &Options::default())?;
    loop {
        match consumer.receive() {
            Ok(message) => println!("{}", String::from_utf8_lossy(&message)),
            Err(Error::Closed { delivered }) => break println!("{delivered} messages"),
            Err(error) => return Err(error),
        }
    }
    sender.join().expect("no panic")
}
