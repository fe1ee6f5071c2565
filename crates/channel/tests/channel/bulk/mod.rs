//! Bulk transfer between real processes: data, guarantees, deaths and refusals. The tests take the
//! mechanisms from the list, and name almost none of them.

mod conformance;
mod files;
mod lives;
mod open_files;
pub mod peer;
mod refusals;
