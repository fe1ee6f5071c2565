//! `thalweg fleet`: shows the progress of a sharded copy.

use clap::Args;
use serde_json::json;
use std::{fmt::Write, path::PathBuf};
use thalweg_core::{failed::quoted, shown};
use thalweg_tree::fleet::{FleetPhase, FleetStatus, status};

use super::{Subcommand, copy::of_worker};
use crate::{
    args::flag,
    exit::{CommandFailure, Exit},
    output::{
        answer::SCHEMA,
        quantity,
        text::{print, print_json},
    },
};

/// Show the progress of a sharded copy and of each worker
///
/// A sharded copy is made by several processes of `thalweg copy --shard`, the workers. This command only reads. Each
/// rate covers the time from the start of the worker to the end of its last task, by the clock of its machine. A worker
/// without a report is still running or was killed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FleetArgs {
    /// Destination of the copy, or the directory .NAME.thalweg-fleet beside it
    #[arg(value_name = "DIR")]
    pub path: PathBuf,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg fleet /scratch/copy
  thalweg fleet --json /scratch/copy | jq '.done_bytes / .bytes'

Exit status:
  0  success
  1  no sharded copy, or an error
  2  wrong usage";

impl Subcommand for FleetArgs {
    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let found = status(&self.path);
        let found = found.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
        let Some(found) = found else {
            let message = format!("{}: no sharded copy in progress", quoted(&self.path));
            return Err(CommandFailure::new(Exit::Failed, message));
        };
        if self.json {
            print_json(&json!({
                "folder": shown(&found.folder).to_string(), "phase": name(found.phase),
                "tasks": found.tasks, "done": found.done, "bytes": found.bytes,
                "done_bytes": found.done_bytes, "workers": found.workers, "schema": SCHEMA,
            }))?;
        } else {
            print(&text(&found))?;
        }
        Ok(Exit::Done)
    }
}

fn name(phase: FleetPhase) -> &'static str {
    match phase {
        FleetPhase::Survey => "survey",
        FleetPhase::Move => "move",
        FleetPhase::Moved => "moved",
        FleetPhase::Finish => "finish",
        FleetPhase::Full => "full",
    }
}

fn text(found: &FleetStatus) -> String {
    let phase = match found.phase {
        FleetPhase::Survey => "rank 0 has not finished the plan",
        FleetPhase::Move => "copying",
        FleetPhase::Moved => "all data is copied; no worker has started to publish the directory",
        FleetPhase::Finish => "all data is copied; a worker is publishing the directory",
        FleetPhase::Full => "the destination is full: free some space, and start the workers again",
    };
    let mut text = format!(
        "{}: {phase}\n{} of {}, {} of {}\n",
        shown(&found.folder),
        found.done,
        quantity::count(found.tasks, "task", "tasks"),
        quantity::bytes(found.done_bytes),
        quantity::bytes(found.bytes)
    );
    for worker in &found.workers {
        let _ = writeln!(text, "{}", of_worker(worker));
    }
    text
}
