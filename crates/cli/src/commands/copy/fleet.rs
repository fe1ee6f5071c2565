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
    CopyArgs, begun_in_vain, is_dash, operands, options,
    shard::{Rank, Shard, listed},
    summary,
    watcher::Watcher,
};
use crate::{
    exit::{Exit, Failure},
    interrupt,
    output::{
        answer::{Answer, Fleet},
        quantity,
        text::{note, print},
    },
    profile::{Moves, Saved},
    progress::{Counting, Meter},
};

/// Works as one of several workers, or prints the detected rank.
pub fn run(args: &CopyArgs, shard: Shard) -> Result<Exit, Failure> {
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
    let saved = Saved::use_if_current(!args.choice.no_profile, Moves::Files);
    options.profile = saved.current.clone().map(Arc::new);
    let mut member = Member::new(rank.rank, rank.size, args.fleet.wait);
    member.task_bytes = args.fleet.shard_size;
    let watcher = Watcher::new(args, Meter::new(args.shown, None, None), Counting::none());
    let worked = work(&source, &destination, &options, &member, &watcher);
    watcher.finish(worked.as_ref().map_or(0, |report| report.tree.bytes));
    let report = worked.map_err(|error| refused(&error))?;
    tell(args, rank, &report, &destination)?;
    exit(&report)
}

/// Returns the source directory and the destination.
fn ends(args: &CopyArgs) -> Result<(PathBuf, PathBuf), Failure> {
    let usage = |message: &str| Failure::new(Exit::Usage, message);
    let (sources, destination) = operands(args)?;
    let [source] = &sources[..] else {
        return Err(usage("--shard copies one folder: thalweg copy -a --shard RANK SRC DST"));
    };
    for (is_asked, what) in [
        (!args.kept.archive, "--shard without -a: it copies as -a does, and no otherwise"),
        (is_dash(source) || is_dash(&destination), "--shard copies a folder, and no stream"),
        (args.target_directory.is_some(), "--shard and -t: DST is the new folder itself"),
        (args.chosen.is_part(), "--shard copies all of SRC: no --exclude, no --files-from"),
        (args.tune, "--shard and --tune: each machine goes by its own profile (thalweg tune)"),
        (args.manifest.is_some(), "--shard and --manifest: `thalweg manifest DST` makes it"),
    ] {
        if is_asked {
            return Err(usage(what));
        }
    }
    Ok((source.clone(), destination))
}

fn refused(error: &Error) -> Failure {
    match error {
        Error::Refused { reason: Refusal::NotNew, .. } => {
            let what_next = "-T copies into one that is there, file by file";
            Failure::new(Exit::Unsupported, format!("{error}; {what_next}"))
        }
        Error::Refused { reason: Refusal::NotSince, .. } => {
            let what_next = "`thalweg copy -aT --resume SRC DST` compares it with SRC";
            Failure::new(Exit::Unsupported, format!("{error}; {what_next}"))
        }
        error => begun_in_vain(error),
    }
}

/// Prints the JSON object, or the lines.
fn tell(
    args: &CopyArgs,
    Rank { rank, size }: Rank,
    report: &FleetReport,
    destination: &Path,
) -> Result<(), Failure> {
    if args.shown.json {
        let end = match report.end {
            FleetEnd::Finished => "finished",
            FleetEnd::Others => "others",
            FleetEnd::There => "there",
            FleetEnd::Unfinished => "unfinished",
        };
        let fleet = Fleet {
            rank,
            size,
            tasks: report.tasks,
            done: report.done,
            end,
            workers: report.workers.clone(),
        };
        let fleet = Some(fleet);
        let answer = Answer { fleet, ..summary::answer(&report.tree, None, args.verify) };
        return print(&(answer.line() + "\n"));
    }
    if args.shown.quiet {
        return Ok(());
    }
    if report.end == FleetEnd::There {
        let path = shown(destination);
        note(&format!("'{path}' is there, with the time of SRC: nothing was left to do"));
        return Ok(());
    }
    if args.shown.is_watched() || args.is_verbose() {
        note(&line(rank, size, report));
        report.workers.iter().for_each(|worker| note(&of_worker(worker)));
        summary::steps_down(&report.tree, args.debug).lines().for_each(note);
    }
    Ok(())
}

/// Returns text such as `rank 1 of 2: 12 of 40 tasks; copied 3 files ...; another rank finishes, or has finished`.
fn line(rank: u32, size: u32, report: &FleetReport) -> String {
    let copied = summary::line(&report.tree, false);
    let end = match report.end {
        FleetEnd::Finished => "; finished",
        FleetEnd::Others => "; another rank finishes, or has finished",
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
        let _ = write!(text, "; no report, and no task for {}", quantity::duration(silent));
    }
    text
}

fn exit(report: &FleetReport) -> Result<Exit, Failure> {
    let folder = shown(&report.folder);
    let goes_on = format!(
        "not everything was copied; unfinished: '{folder}'; the same command goes on, rm -r removes it"
    );
    match (report.end, report.tree.halted) {
        (_, Some(Halt::Cancelled)) => return Err(interrupt::failure(&goes_on)),
        (_, Some(Halt::Full)) => {
            let message = format!("the destination is full; {goes_on}");
            return Err(Failure::new(Exit::Incomplete, message));
        }
        // The worker that finishes the copy also meets this worker's errors, and reports them.
        (FleetEnd::Others | FleetEnd::There, None) => return Ok(Exit::Done),
        (FleetEnd::Unfinished, None) => return Err(Failure::new(Exit::Incomplete, goes_on)),
        (FleetEnd::Finished, None) => {}
    }
    match report.tree.ending() {
        Ending::Done => Ok(Exit::Done),
        Ending::Differ => Err(Failure::new(Exit::Differ, "")),
        Ending::Partial if report.tree.error_count == 0 => Ok(Exit::Incomplete),
        Ending::Partial => Err(Failure::new(Exit::Failed, "")),
    }
}
