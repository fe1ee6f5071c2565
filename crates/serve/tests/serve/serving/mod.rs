//! The server over real sockets, with a client that checks every byte.

mod changing;
mod digests;
mod faults;
mod files;
mod folders;
mod hostile;
mod limits;
mod odd;
mod parking;
mod profiles;
mod refused;
mod support;
