//! A study: a published experiment restated as data, and what became of it on this machine.
//!
//! Reading order: [`file`] is the TOML file under `studies/`, [`works`](crate::arms) make its arms,
//! `run` starts fresh-process sessions, `session` is the inside of one, `claims` turns intervals
//! into verdicts, [`result`] is the JSON that is saved.

pub mod carried;
mod check;
pub mod claims;
mod eta;
pub mod figures;
pub mod file;
pub mod group;
pub(crate) mod load;
pub mod new;
pub mod pin;
pub mod places;
pub mod preset;
pub mod rehearsal;
pub mod result;
pub mod run;
pub(crate) mod session;
pub mod store;
pub mod sum;
pub mod tally;
pub mod wire;
