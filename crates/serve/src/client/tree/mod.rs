//! Fetches a whole directory from a server that lists it. The list comes first and must be valid as a whole. Then
//! thalweg creates the directories, fetches files and links over several connections, and finally sets the attributes
//! of the directories.
//!
//! A directory that does not exist is built in a staging directory and renamed when it is complete. An existing entry
//! is removed only if an entry of the list replaces it, or if a sync deletes it. No name of the list leads out of the
//! directory.

mod account;
mod asking;
mod bring;
mod change;
mod compare;
mod deletion;
mod directories;
pub mod entry;
mod files;
mod hard_links;
mod hash_checks;
mod job;
pub mod list;
mod listed_filter;
mod listed_names;
mod naming;
mod nodes;
mod options;
mod outcome;
mod place;
mod preview;
mod received;
mod reference;
mod renames;
mod response;
mod store;
mod survey;
mod worker;

pub use account::MOST_REPORTED;
pub use bring::fetch_tree;
pub use options::{TreeOptions, TreeSync, TreeWatcher};
pub use outcome::{Missed, TreeFetched};
pub use place::TreeDestination;
