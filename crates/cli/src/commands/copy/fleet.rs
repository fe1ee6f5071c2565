//! `thalweg copy --shard`: one worker of a copy that several processes share.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_core::shown;
use thalweg_tree::{
    Ending, Error, Halt, Refusal,
    fleet::{FleetEnd, FleetReport, Member, WorkerRecord, work},
};

use super::{
    CopyArgs, is_dash, not_started, operands, options,
    shard::{Rank, Shard, listed},
    summary,
    watcher::CopyWatcher,
};
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::{FleetAnswer, JsonAnswer},
        quantity,
        text::{self, AnswerStream, note, print},
    },
    profile::{Moves, SavedProfile},
    progress::{Counting, ProgressMeter},
    remote::direction::Direction,
};

/// Runs one worker of a sharded copy. With `--shard list`, prints the detected rank instead.
pub fn run(args: &CopyArgs, shard: Shard) -> Result<Exit, CommandFailure> {
    if shard == Shard::List {
        return print(&listed()).map(|()| Exit::Done);
    }
    let (source, destination) = ends(args)?;
    let rank = shard.rank()?;
    interrupt::catch();
    let mut options = options::of(args)?;
    if options.jobs == 0 {
        options.jobs = shard.threads();
    }
    let saved = SavedProfile::use_if_current(!args.choice.no_profile, Moves::Files);
    options.profile = saved.current.clone().map(Arc::new);
    let mut member = Member::new(rank.rank, rank.size, args.fleet.wait);
    member.task_bytes = args.fleet.shard_size;
    let watcher =
        CopyWatcher::new(args, ProgressMeter::new(args.shown, None, None), Counting::none());
    let worked = work(&source, &destination, &options, &member, &watcher);
    watcher.finish(worked.as_ref().map_or(0, |report| report.tree.bytes));
    let report = worked.map_err(|error| refused(&error))?;
    report_end(args, rank, &report, &destination)?;
    exit(&report)
}

/// Returns the source directory and the destination.
fn ends(args: &CopyArgs) -> Result<(PathBuf, PathBuf), CommandFailure> {
    let usage = |message: &str| CommandFailure::new(Exit::Usage, message);
    let (sources, destination) = operands(args)?;
    let [source] = &sources[..] else {
        return Err(usage("--shard copies one directory: thalweg copy -a --shard RANK SRC DST"));
    };
    for (is_asked, what) in [
        (!args.kept.archive, "--shard requires -a"),
        (
            is_dash(source) || is_dash(&destination),
            "--shard cannot be used with standard input or output",
        ),
        (
            Direction::of(&sources, &destination)?.is_some(),
            "--shard cannot be used with a remote source or destination",
        ),
        (
            args.target_directory.is_some(),
            "--shard cannot be used with -t: DST is the new directory itself",
        ),
        (args.chosen.is_part(), "--shard cannot be used with --exclude or --files-from"),
        (args.tune, "--shard cannot be used with --tune: run `thalweg tune` on each machine"),
        (
            args.manifest.is_some(),
            "--shard cannot be used with --manifest: run `thalweg manifest DST` afterwards",
        ),
    ] {
        if is_asked {
            return Err(usage(what));
        }
    }
    Ok((source.clone(), destination))
}

fn refused(error: &Error) -> CommandFailure {
    match error {
        Error::Refused { reason: Refusal::NotNew, .. } => {
            CommandFailure::new(Exit::Unsupported, error.to_string())
                .hint("use -T to copy into an existing directory")
        }
        Error::Refused { reason: Refusal::NotSince, .. } => CommandFailure::new(
            Exit::Unsupported,
            error.to_string(),
        )
        .hint(
            "`thalweg copy -aT --resume SRC DST` compares the files and copies those that differ",
        ),
        error => not_started(error),
    }
}

/// Prints the result, as a JSON object or as lines of text.
fn report_end(
    args: &CopyArgs,
    Rank { rank, size }: Rank,
    report: &FleetReport,
    destination: &Path,
) -> Result<(), CommandFailure> {
    if args.shown.json {
        let end = match report.end {
            FleetEnd::Finished => "finished",
            FleetEnd::Others => "others",
            FleetEnd::There => "there",
            FleetEnd::Unfinished => "unfinished",
        };
        let fleet = FleetAnswer {
            rank,
            size,
            tasks: report.tasks,
            done: report.done,
            end,
            workers: report.workers.clone(),
        };
        let fleet = Some(fleet);
        let answer = JsonAnswer { fleet, ..summary::answer(&report.tree, None, args.verify) };
        return text::answer(&answer.line(), AnswerStream::Output);
    }
    if args.shown.quiet {
        return Ok(());
    }
    if report.end == FleetEnd::There {
        let path = shown(destination);
        note(&format!("'{path}' is already complete"));
        return Ok(());
    }
    if args.shown.is_watched() || args.is_verbose() {
        note(&line(rank, size, report));
        report.workers.iter().for_each(|worker| note(&of_worker(worker)));
        summary::fallbacks(&report.tree, args.debug).lines().for_each(note);
    }
    Ok(())
}

/// Returns text such as `rank 1 of 2: 12 of 40 tasks; 3 files copied ...; another rank finishes the copy`.
fn line(rank: u32, size: u32, report: &FleetReport) -> String {
    let copied = summary::line(&report.tree, false);
    let end = match report.end {
        FleetEnd::Finished => "; finished",
        FleetEnd::Others => "; another rank finishes the copy",
        FleetEnd::There | FleetEnd::Unfinished => "",
    };
    let (done, tasks) = (report.done, quantity::count(report.tasks, "task", "tasks"));
    format!("rank {rank} of {size}: {done} of {tasks}; {}{end}", copied.trim_end())
}

/// Returns text such as `node-7, rank 1 (process 4242): 12 tasks, 1.4 GiB in 2.0 s: 0.7 GiB/s by splice`.
pub fn of_worker(worker: &WorkerRecord) -> String {
    let took = Duration::try_from_secs_f64(worker.seconds).unwrap_or_default();
    let mut text = format!(
        "{}, rank {} (process {}): {}, {} in {}",
        worker.host,
        worker.rank,
        worker.pid,
        quantity::count(worker.tasks, "task", "tasks"),
        quantity::bytes(worker.bytes),
        quantity::duration(took)
    );
    if worker.bytes > 0 {
        let _ = write!(text, ": {}", quantity::rate(worker.bytes, took));
    }
    let names: Vec<&str> = worker.mechanisms.iter().map(|moved| moved.mechanism.as_str()).collect();
    if !names.is_empty() {
        let _ = write!(text, " by {}", names.join(", "));
    }
    if !worker.ended {
        let silent = Duration::try_from_secs_f64(worker.silent).unwrap_or_default();
        let _ = write!(
            text,
            "; has reported nothing and completed no task for {}",
            quantity::duration(silent)
        );
    }
    text
}

fn exit(report: &FleetReport) -> Result<Exit, CommandFailure> {
    let folder = shown(&report.folder);
    let state = format!("some files were not copied; unfinished: '{folder}'");
    let hint = "run the same command again to continue, or remove the unfinished copy with `rm -r`";
    let incomplete = |message| Err(CommandFailure::new(Exit::Incomplete, message).hint(hint));
    match (report.end, report.tree.halted) {
        (_, Some(Halt::Cancelled)) => return Err(interrupt::failure(&state).hint(hint)),
        (_, Some(Halt::Full)) => return incomplete(format!("the destination is full; {state}")),
        // This worker exits with 0 even after errors: the worker that finishes the copy encounters and reports them,
        // too.
        (FleetEnd::Others | FleetEnd::There, None) => return Ok(Exit::Done),
        (FleetEnd::Unfinished, None) => return incomplete(state),
        (FleetEnd::Finished, None) => {}
    }
    match report.tree.ending() {
        Ending::Done => Ok(Exit::Done),
        Ending::Differ => Err(CommandFailure::new(Exit::Differ, "")),
        Ending::Partial if report.tree.error_count == 0 => Ok(Exit::Incomplete),
        Ending::Partial => Err(CommandFailure::new(Exit::Failed, "")),
    }
}
