//! The arms (compared variants) that the measuring commands sample. `thalweg-lab` has the arms that only studies need.

pub mod bulk;
pub mod command;
pub mod content;
pub mod cp;
pub mod far;
pub mod knobs;
pub mod random_copies;
pub mod transfer;
