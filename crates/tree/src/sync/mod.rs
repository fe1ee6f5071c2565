//! Makes the content of one directory equal to that of another.
//!
//! [`sync`] runs [`copy`](crate::copy()) with [`CopyOptions::sync`](crate::CopyOptions::sync), which compares each
//! existing entry with its source. It then deletes the entries that the source does not have, if the caller requests
//! that and nothing failed. The names of the source come from [`SourceNames`], so that the source may also be on
//! another machine.

mod copied_names;
mod delete;
mod distinct;
mod filter;
mod listing;
mod local;
mod moved;
mod overlap;
mod plan;
mod refusal;
mod renames;
mod run;
mod state;

pub use delete::{CopyOutcome, DeleteReport, delete_extra};
pub use filter::{DirectoryFilter, LONGEST_FILTER, is_filter_name};
pub use listing::{SourceListing, SourceNames};
pub use moved::{MoveReport, move_all};
pub use plan::DeleteOptions;
pub use refusal::DeleteRefusal;
pub use renames::{RenameCandidates, SizeAndTime};
pub use run::{SyncOptions, SyncReport, open_kept, sync};
pub use state::{file_system_of, is_state_file, may_be_identity};
