//! Communication between processes of one machine, through shared memory and without a daemon.
//!
//! A [`Listener`] waits at an [`Address`] and a [`Link`] connects to it. A link carries one channel: of messages, or of large
//! buffers. The process at the other end may be written in C or Java.
//!
//! Messages, from a [`Producer`] to a [`Consumer`]:
//!
//! ```
//! use std::thread;
//! use thalweg::channel::{Address, Consumer, Error, Link, Listener, Options, Producer};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("quotes");
//! let address = Address::at(path);
//! let listener = Listener::bind(&address)?;
//! // Usually in another process.
//! let sender = thread::spawn(move || {
//!     let mut producer = Producer::open(Link::connect(&address)?, &Options::default())?;
//!     producer.send(b"copied")?;
//!     let mut loan = producer.loan(8)?;
//!     loan.copy_from_slice(b"in place");
//!     loan.commit() // sends it; dropping it would discard it
//! });
//! let mut consumer = Consumer::open(listener.accept()?, &Options::default())?;
//! assert_eq!(&*consumer.receive()?, b"copied");
//! assert_eq!(&*consumer.receive()?, b"in place");
//! assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 2 }));
//! # sender.join().unwrap()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Large buffers, from a [`Sender`] to a [`Receiver`], which agree on a mechanism that works between them. Either the whole
//! buffer arrives, or [`Error::PeerDied`] reports how much of it is valid:
//!
//! ```
//! use std::thread;
//! use thalweg::channel::{BulkOptions, Error, Link, Receiver, Sender};
//!
//! let (near, far) = Link::pair().expect("a pair of sockets");
//! let sender = thread::spawn(move || {
//!     Sender::over(near, BulkOptions::default())?.send_from(&vec![7; 3_000_000])
//! });
//! let mut receiver = Receiver::over(far, &BulkOptions::default())?;
//! let buffer = receiver.recv_new()?;
//! println!("{} bytes by {}", buffer.len(), receiver.mechanism().name);
//! assert!(buffer.iter().all(|byte| *byte == 7));
//! # sender.join().unwrap()?;
//! # Ok::<(), Error>(())
//! ```

pub use thalweg_channel::bulk::{Buffer, Options as BulkOptions, Receiver, Sender};
pub use thalweg_channel::error::Result;
pub use thalweg_channel::{
    Address, Admit, Arrival, Batch, Broadcast, Consumer, Error, Link, Listener, Loan, Mpsc,
    Options, Peer, Producer, Sample, Samples, Slow, Subscription, Wait, pair,
};
