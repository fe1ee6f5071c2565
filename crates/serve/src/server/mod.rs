//! The server: one worker per processor, each with its own listeners and its own loop.

mod accounts;
mod answer;
mod archive;
mod body;
mod cold;
mod connection;
mod crew;
mod digests;
mod error;
mod gathered;
mod header;
mod lines;
mod listen;
mod listing;
mod log;
mod mailbox;
mod moving;
mod open;
mod opened;
mod options;
mod page;
mod running;
mod sending;
mod site;
mod store;
mod unsent;
mod version;
mod waiting;
mod walk;
mod worker;

pub use error::ServeError;
pub use gathered::ONE_SEND;
pub use log::{Format, Log};
pub use open::Follow;
pub use options::{Address, Options, Timeouts};
pub use running::{Running, size_of};
