//! Brings a whole folder of a server that lists it: first the list, all of which must make sense; then the folders,
//! the files and links over several connections, and the folders' own attributes at last.
//!
//! A folder that is not there yet is built beside its name and gets it when all is in. Nothing is ever removed
//! that the list does not replace, and no name of the list leads out of the folder.

mod account;
mod asking;
mod bring;
mod doubts;
pub mod entry;
mod files;
mod folders;
mod job;
pub mod list;
mod naming;
mod options;
mod outcome;
mod place;
mod worker;

pub use account::MOST_TOLD;
pub use bring::fetch_tree;
pub use options::{TreeOptions, TreeWatcher};
pub use outcome::{Missed, TreeFetched};
pub use place::Place;
