//! A study: a published experiment restated as data, and its result on this machine. A cell at one size under one load
//! is called a condition; study files call it a place.
//!
//! Reading order: [`mod@file`] defines the TOML files under `studies/`, [`arms`](crate::arms) creates the arms
//! (compared variants), `run` starts each session in a fresh process, `session` runs inside that process, `claims`
//! turns intervals into verdicts, and [`result`] defines the JSON that is saved.

pub mod carried;
mod check;
pub mod claims;
pub mod conditions;
pub mod costs;
mod eta;
pub mod evaluation;
pub mod extend;
pub mod file;
pub mod messages;
pub mod new;
pub mod rehearsal;
pub mod result;
pub mod rounds;
pub mod run;
pub(crate) mod session;
pub mod settings;
pub mod store;
pub mod tally;
pub mod unfinished;
