//! The `thalweg` command in the weather it will meet: full and failing disks, refused calls, kills, sources that
//! change, crowds, real file systems. Everything happens in scratch folders; what cannot run here skips and says why.

#![allow(clippy::unwrap_used)]

mod announced;
mod append_only;
mod changing_sources;
mod chosen_files;
mod closed_streams;
mod cp_differential;
mod cp_flags;
mod crowds;
mod denied_calls;
mod documented_json;
mod dry_runs;
mod error_words;
mod failing_disks;
mod fetch_refused;
mod fetch_through;
mod fetch_trees;
mod fetches;
mod few_threads;
mod file_systems;
mod fleets;
mod fleets_into;
mod fleets_shared;
mod foreign_words;
mod full_disk;
mod handovers;
mod hard_links;
mod kills;
mod leftovers;
mod limits;
mod manifests;
mod measured_ways;
mod odd_sinks;
mod open_handovers;
mod power_cut;
mod random_trees;
mod refused_attributes;
mod rereads;
mod restarts;
mod resumes;
mod rivals;
mod same_files;
mod schedulers;
mod serve_budget;
mod served_kills;
mod serves;
mod shown_progress;
mod sick_sinks;
mod sick_sources;
mod sparse_files;
mod support;
mod two_users;
mod unreadable;
mod verifies;
