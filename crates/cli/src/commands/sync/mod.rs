//! `thalweg sync`: makes a directory equal to another one.

use std::{path::PathBuf, sync::Arc, time::Duration};
use thalweg_core::shown;
use thalweg_tree::{
    CopyOptions, Dereference, Error, Halt, Hash, Preserve,
    sync::{DeleteOptions, SyncOptions, SyncReport, sync},
};

use super::{
    Subcommand,
    copy::{CopyArgs, CopyWatcher, answer_of},
};
use crate::{
    exit::{CommandFailure, Exit, advice_on_refusal},
    interrupt,
    output::{
        answer::{JsonAnswer, SyncAnswer},
        summary_words::sync_summary,
        text::{self, AnswerStream, note},
    },
    profile::{Moves, SavedProfile},
    progress::{Counting, ProgressMeter},
};

mod args;
mod remote;
mod watcher;

pub use args::SyncArgs;
pub use watcher::SyncWatcher;

const NO_DESTINATION: &str = "missing destination: thalweg sync SRC... DST";

impl Subcommand for SyncArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then_some(AnswerStream::Output)
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        if let Some(exit) = remote::run(self)? {
            return Ok(exit);
        }
        interrupt::catch();
        let options = options(self)?;
        let mut sources = self.paths.clone();
        let Some(destination) = sources.pop().filter(|_| !sources.is_empty()) else {
            return Err(CommandFailure::new(Exit::Usage, NO_DESTINATION));
        };
        let copied = CopyArgs {
            dry_run: self.dry_run,
            verbose: self.verbose,
            shown: self.shown,
            ..CopyArgs::default()
        };
        let meter = ProgressMeter::new(self.shown, None, None);
        let watcher = CopyWatcher::new(&copied, meter, Counting::of_sync(&sources, &options));
        let watcher = SyncWatcher::new(self, watcher)?;
        let synced = sync(&sources, &destination, &options, &watcher);
        watcher.finish(synced.as_ref().map_or(0, |report| report.tree.bytes));
        let report = synced.map_err(|error| not_started(&error))?;
        let summary = summary(&report, self.dry_run);
        watcher.log(&summary);
        if self.shown.json {
            text::answer(&answer(&report).line(), AnswerStream::Output)?;
        } else if (self.shown.is_watched() || self.prints_changes()) && !self.shown.quiet {
            note(&summary);
        }
        exit(&report, &destination)
    }
}

/// Translates the arguments for the library.
fn options(args: &SyncArgs) -> Result<SyncOptions, CommandFailure> {
    let saved = SavedProfile::use_if_current(true, Moves::Files);
    let copy = CopyOptions {
        dereference: Some(if args.copy_links { Dereference::Always } else { Dereference::Never }),
        preserve: Preserve::all(),
        filter: args.chosen.filter()?,
        verbose: args.prints_changes() || args.shown.json || args.log.is_some(),
        one_file_system: args.one_file_system,
        jobs: args.jobs.map_or(0, |jobs| jobs as usize),
        verify: args.verify.then_some(Hash::Blake3),
        fsync: args.durable.wanted(),
        limit: args.limit.filter(|limit| *limit > 0),
        dry_run: args.dry_run,
        given: args.given.attributes(false)?,
        limits: args.chosen.limits,
        profile: saved.current.map(Arc::new),
        ..CopyOptions::default()
    };
    let delete = DeleteOptions {
        excluded: args.delete_excluded,
        most: args.max_delete,
        force: args.force,
        ..DeleteOptions::default()
    };
    Ok(SyncOptions {
        copy,
        checksum: args.checksum,
        delete: args.deletes().then_some(delete),
        force: args.force,
        keep_in: args.trash.clone(),
        no_renames: args.no_detect_renames,
        reference: args.reference.clone(),
        filter_file: args.chosen.filter_file.clone(),
    })
}

/// Returns the line at the end.
fn summary(report: &SyncReport, dry_run: bool) -> String {
    let tree = &report.tree;
    let took = Duration::try_from_secs_f64(tree.seconds).unwrap_or_default();
    let transferred = (!dry_run).then_some((tree.bytes, took));
    sync_summary(&sync_answer(report), tree.left_out, transferred)
}

fn sync_answer(report: &SyncReport) -> SyncAnswer {
    let counts = report.tree.sync;
    let refused = report.deletion.as_ref().and_then(|deletion| deletion.refused.as_ref());
    SyncAnswer {
        created: counts.created,
        linked: counts.linked,
        changed: counts.changed,
        deleted: counts.deleted,
        unchanged: counts.unchanged,
        failed: report.tree.error_count,
        refused: refused.map(ToString::to_string),
    }
}

/// Returns the JSON object at the end.
fn answer(report: &SyncReport) -> JsonAnswer {
    let sync = sync_answer(report);
    let mut answer = answer_of(&report.tree);
    let refused = sync.refused.as_ref();
    answer.error = answer.error.or_else(|| refused.map(|why| format!("nothing deleted: {why}")));
    answer.sync = Some(sync);
    answer
}

fn exit(report: &SyncReport, destination: &PathBuf) -> Result<Exit, CommandFailure> {
    let tree = &report.tree;
    let again = "run the same command again to continue";
    let deleted = match &report.deletion {
        Some(deletion) if deletion.deleted > 0 => "not everything was deleted",
        _ => "nothing was deleted",
    };
    match tree.halted {
        Some(Halt::Cancelled) => return Err(interrupt::failure(deleted).hint(again)),
        Some(Halt::Full) => {
            let why = format!("'{}': the sync is incomplete; {deleted}", shown(destination));
            return Err(CommandFailure::new(Exit::Incomplete, why).hint(again));
        }
        None => {}
    }
    if let Some(refused) = report.deletion.as_ref().and_then(|deletion| deletion.refused.as_ref()) {
        let why = format!("'{}': nothing was deleted: {refused}", shown(destination));
        return Err(CommandFailure::new(Exit::Failed, why).hint(advice_on_refusal(refused)));
    }
    match (tree.error_count, tree.changed) {
        (0, 0) => Ok(Exit::Done),
        (0, _) => Ok(Exit::Incomplete),
        _ => Err(CommandFailure::new(Exit::Failed, "")),
    }
}

/// Returns the failure of a sync that did not start.
fn not_started(error: &Error) -> CommandFailure {
    let exit = if matches!(error, Error::Usage(_)) { Exit::Usage } else { Exit::Failed };
    CommandFailure::new(exit, error.to_string())
}
