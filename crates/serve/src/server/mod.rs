//! The server: one worker per processor, each with its own listeners and its own loop.

mod accounts;
mod answer;
mod archive;
mod body;
mod connection;
mod error;
mod header;
mod lines;
mod listen;
mod listing;
mod log;
mod moving;
mod open;
mod options;
mod page;
mod plans;
mod running;
mod sending;
mod site;
mod version;
mod walk;
mod worker;

pub use error::ServeError;
pub use log::{Format, Log};
pub use open::Follow;
pub use options::{Address, Options, Timeouts};
pub use running::Running;
