//! A study: a published experiment restated as data, and what became of it on this machine.
//!
//! Reading order: [`file`] is the TOML file under `studies/`, [`works`](crate::works) make its arms,
//! `run` starts fresh-process sessions, `session` is the inside of one, `claims` turns intervals
//! into verdicts, [`result`] is the JSON that is saved.

pub mod file;
pub mod result;
pub mod size;
