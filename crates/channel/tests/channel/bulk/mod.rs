//! Bulk transfer between real processes: data, guarantees, deaths and refusals. The tests use the
//! list of mechanisms, and almost no mechanism by name.

mod conformance;
mod files;
mod lives;
mod open_files;
pub mod peer;
mod refusals;
