//! `thalweg move`: moves directories and files, also to other file systems.

use clap::Args;
use std::path::{Path, PathBuf};
use thalweg_core::{quantity, quantity::parse_rate, shown};
use thalweg_serve::remote::RemoteName;
use thalweg_tree::{
    CopyOptions, Dereference, Ending, Error, Halt, Preserve,
    sync::{MoveReport, SyncOptions, move_all},
};

use super::{
    Subcommand,
    copy::{CopyArgs, CopyWatcher, answer_of},
    sync::{SyncArgs, SyncWatcher},
};
use crate::{
    args::ProgressArgs,
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        summary_words::{count, grouped},
        text::{self, AnswerStream, note},
    },
    progress::{Counting, ProgressMeter},
};

/// Move files and directories, also to another file system
///
/// A SRC directory becomes DST. If DST is a directory, the content of SRC is added to it. Several SRC, or a file, become
/// entries of DST, which must exist.
///
/// thalweg renames SRC if the new path does not exist and its directory is on the same file system. Otherwise it
/// copies SRC as `thalweg sync` does, compares each copy with its source, and writes it to stable storage. If
/// everything succeeded, it deletes the entries of SRC. If an entry of SRC changed after it was copied, thalweg keeps
/// it.
///
/// Run the command again to continue an interrupted move.
#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES, args_override_self = true, infer_long_args = true)]
pub struct MoveArgs {
    /// Sources, then the destination
    #[arg(required = true, num_args = 1.., value_name = "SRC... DST")]
    pub paths: Vec<PathBuf>,
    /// Print one line per copied entry, as `thalweg sync -i` does
    #[arg(short, long)]
    pub verbose: bool,
    /// Print what would be copied if no rename were possible, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Copy this many files at the same time [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Limit the rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

impl Subcommand for MoveArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then_some(AnswerStream::Output)
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        interrupt::catch();
        self.paths.iter().try_for_each(|path| expect_local(path))?;
        let mut sources = self.paths.clone();
        let Some(destination) = sources.pop().filter(|_| !sources.is_empty()) else {
            let why = "missing destination: thalweg move SRC... DST";
            return Err(CommandFailure::new(Exit::Usage, why));
        };
        let options = self.options();
        let copied = CopyArgs { dry_run: self.dry_run, shown: self.shown, ..CopyArgs::default() };
        let meter = ProgressMeter::new(self.shown, None, None);
        let watcher = CopyWatcher::new(&copied, meter, Counting::of_sync(&sources, &options));
        let printed = SyncArgs {
            itemize: self.verbose,
            dry_run: self.dry_run,
            shown: self.shown,
            ..SyncArgs::default()
        };
        let watcher = SyncWatcher::new(&printed, watcher)?;
        let moved = move_all(&sources, &destination, &options, &watcher);
        watcher.finish(moved.as_ref().map_or(0, |report| report.tree.bytes));
        let report = moved.map_err(|error| not_started(&error, &sources))?;
        if self.shown.json {
            text::answer(&answer_of(&report.tree).line(), AnswerStream::Output)?;
        } else if (self.shown.is_watched() || self.verbose || self.dry_run) && !self.shown.quiet {
            note(&summary(&report, self.dry_run));
        }
        exit(&report)
    }
}

impl MoveArgs {
    fn options(&self) -> SyncOptions {
        let copy = CopyOptions {
            dereference: Some(Dereference::Never),
            preserve: Preserve::all(),
            verbose: self.verbose || self.dry_run || self.shown.json,
            jobs: self.jobs.map_or(0, |jobs| jobs as usize),
            limit: self.limit.filter(|limit| *limit > 0),
            dry_run: self.dry_run,
            ..CopyOptions::default()
        };
        SyncOptions { copy, ..SyncOptions::default() }
    }
}

/// Returns text such as `1 source renamed, 12 files copied and verified (1.2 GiB), 14 entries deleted`.
fn summary(report: &MoveReport, dry_run: bool) -> String {
    let files = count(report.tree.files, "file", "files");
    if dry_run {
        return format!("{files} would be copied");
    }
    let renamed = count(report.renamed, "source", "sources");
    if report.tree.files + report.removed + report.tree.error_count == 0 {
        return format!("{renamed} renamed");
    }
    let (bytes, removed) = (quantity::bytes(report.tree.bytes), grouped(report.removed));
    format!("{renamed} renamed, {files} copied and verified ({bytes}), {removed} entries deleted")
}

fn exit(report: &MoveReport) -> Result<Exit, CommandFailure> {
    let state = if report.removed > 0 {
        "everything was copied; not everything was deleted from the source"
    } else {
        "nothing was deleted from the source"
    };
    let again = "run the same command again to continue";
    match (report.tree.halted, report.tree.ending()) {
        (Some(Halt::Cancelled), _) => Err(interrupt::failure(state).hint(again)),
        (Some(Halt::Full), _) => Err(CommandFailure::new(Exit::Incomplete, state).hint(again)),
        (None, Ending::Done) => Ok(Exit::Done),
        (None, Ending::Differ) => Err(CommandFailure::new(Exit::Differ, state)),
        (None, Ending::Partial) if report.tree.error_count == 0 => {
            Err(CommandFailure::new(Exit::Incomplete, state).hint(again))
        }
        (None, Ending::Partial) => Err(CommandFailure::new(Exit::Failed, state).hint(again)),
    }
}

/// Returns the failure of a move that did not start.
fn not_started(error: &Error, sources: &[PathBuf]) -> CommandFailure {
    if !matches!(error, Error::Usage(_)) {
        return CommandFailure::new(Exit::Failed, error.to_string());
    }
    let failure = CommandFailure::new(Exit::Usage, error.to_string());
    match sources {
        [source] if !source.is_dir() => failure.hint("use `mv` to give a file another name"),
        _ => failure,
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg move photos /mnt/disk/photos       a directory to another disk
  thalweg move a.iso b.iso /mnt/disk         files into a directory
  thalweg move -v photos /mnt/disk/photos    print each copied entry

Exit status:
  0  success
  1  error, or data that differs: the source is kept
  2  wrong usage
  3  incomplete (run the command again), or a source changed during the copy
  4  not supported here";

/// Rejects names on other machines.
fn expect_local(path: &Path) -> Result<(), CommandFailure> {
    match RemoteName::parse(path.as_os_str()) {
        Ok(None) => Ok(()),
        Err(error) => Err(CommandFailure::new(Exit::Usage, error.to_string())),
        Ok(Some(_)) => {
            let why = format!("'{}' is on another machine: move needs local paths", shown(path));
            let hint =
                "use `thalweg sync` and then delete the source, or write ./NAME for a local path";
            Err(CommandFailure::new(Exit::Unsupported, why).hint(hint))
        }
    }
}
