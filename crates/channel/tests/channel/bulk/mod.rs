//! Bulk transfer between real processes: what arrives, what is promised, who lives, what is
//! refused. Written against the list of mechanisms, with no mechanism's name inside.

mod conformance;
mod files;
mod lives;
mod open_files;
pub mod peer;
mod refusals;
