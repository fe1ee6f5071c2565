//! Fetches whole directories: from a thalweg server, and from servers with wrong lists.

mod deltas;
mod disturbed;
mod honest;
mod hostile;
/// The tests of `hostile`, over a command instead of a network connection.
#[allow(clippy::duplicate_mod)]
#[path = "hostile.rs"]
mod hostile_over_command;
mod requested;
mod support;
