//! `thalweg copy`: translates the arguments for the tree copier, and reports its results.

use std::{
    ffi::OsStr,
    fs::{self, Metadata},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_core::{Profile, shown};
use thalweg_measure::tune_copy::{TuneError, TuneResult};
use thalweg_sys::Errno;
use thalweg_tree::{CopyOptions, Ending, Error, Halt, Refusal, TreeReport, manifest::make_of};

use super::{Subcommand, manifest, verify::Findings};
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::JsonAnswer,
        text::{self, AnswerStream, complain, keep, note, print},
    },
    profile::{Moves, SavedProfile},
    progress::{Counting, ProgressMeter},
};

mod args;
mod chosen;
mod fleet;
mod left;
mod options;
mod remote;
mod shard;
mod streams;
mod summary;
mod tuning;
mod watcher;

pub use args::CopyArgs;
use chosen::SourceSelection;
pub use fleet::of_worker;
use left::{CopyLeftovers, WantedCopy};
use streams::{from_standard_input, to_standard_output};
pub use watcher::CopyWatcher;

/// Largest file, in bytes, that is usually copied before a user would interrupt the copy.
const SHORT: u64 = 64 << 20;

impl Subcommand for CopyArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn uses_color(&self) -> bool {
        self.tune
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        let destination = self.target_directory.as_ref().or(self.paths.last());
        let carries_data = destination.is_some_and(|path| is_dash(path));
        self.shown.json.then(|| AnswerStream::beside(carries_data))
    }

    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        if let Some(shard) = self.fleet.shard {
            return fleet::run(self, shard);
        }
        let (sources, destination) = operands(self)?;
        if let Some(copy) = remote::RemoteCopy::of(self, &sources, &destination)? {
            return copy.run();
        }
        // Runs before interrupts are caught, so that Ctrl-C ends a process that reads a list from standard input.
        let choice = SourceSelection::of(self, &sources, &destination)?;
        if is_brief(self, &sources, &destination) {
            interrupt::catch_if_it_lasts();
        } else {
            interrupt::catch();
        }
        let mut options = options::of(self)?;
        let sources = choice.into_options(sources, &mut options);
        if is_dash(&destination) {
            return to_standard_output(self, &sources);
        }
        if sources.iter().any(|source| is_dash(source)) {
            return from_standard_input(self, options, &sources, &destination, color);
        }
        CopyCommand::new(self, color, &sources, &destination).copy(options)
    }
}

/// Returns `true` if one short file is copied to a new name. A signal may then kill the process at any time, because no
/// partial file has that name.
fn is_brief(args: &CopyArgs, sources: &[PathBuf], destination: &Path) -> bool {
    let [source] = sources else { return false };
    let is_stream = is_dash(source) || is_dash(destination);
    // With these options the user expects a message about partial files after an interrupt. With `--parents`, the path
    // of the copy is not one of those tested below.
    let words = [args.interactive, args.inplace, args.parents, args.resume, args.tune];
    let asks_for_more = args.limit.is_some() || words.contains(&true);
    let is_short = |meta: Metadata| meta.is_file() && (1..=SHORT).contains(&meta.len());
    let is_free = |name: &Path| fs::symlink_metadata(name).is_err();
    let inside = || source.file_name().is_some_and(|name| is_free(&destination.join(name)));
    !is_stream
        && !asks_for_more
        && fs::metadata(source).is_ok_and(is_short)
        && (is_free(destination) || (destination.is_dir() && inside()))
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the sources and the destination.
fn operands(args: &CopyArgs) -> Result<(Vec<PathBuf>, PathBuf), CommandFailure> {
    let mut sources = args.paths.clone();
    let destination = match &args.target_directory {
        Some(folder) => Some(folder.clone()),
        None => sources.pop().filter(|_| !sources.is_empty()),
    };
    let missing =
        || CommandFailure::new(Exit::Usage, "missing destination: thalweg copy SRC... DST");
    if args.strip_trailing_slashes {
        for source in &mut sources {
            *source = without_slashes(source);
        }
    }
    let destination = destination.ok_or_else(missing)?;
    sources.iter().chain([&destination]).try_for_each(|path| expect_path(path))?;
    Ok((sources, destination))
}

/// Rejects paths in an object store, as docs/guides/many-machines.md explains: their bytes arrive over TLS, which
/// leaves no choice of mechanism.
fn expect_path(path: &Path) -> Result<(), CommandFailure> {
    let text = path.as_os_str().as_bytes();
    let is_store =
        ["s3://", "gs://", "az://"].iter().any(|store| text.starts_with(store.as_bytes()));
    if !is_store || fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let message = format!("'{}': object stores are not supported", shown(path));
    Err(CommandFailure::new(Exit::Unsupported, message).hint("use rclone or s5cmd"))
}

/// Removes the slashes at the end of a path, except for `/`.
fn without_slashes(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |at| at + 1);
    PathBuf::from(OsStr::from_bytes(&bytes[..end.min(bytes.len())]))
}

struct CopyCommand<'r> {
    args: &'r CopyArgs,
    color: bool,
    sources: &'r [PathBuf],
    destination: &'r Path,
    /// `true` if the copy creates the destination as a new directory: all sources are directories, and the destination
    /// is not an existing one.
    makes_folder: bool,
}

/// Result of `--tune`, and the profile in which it was saved.
struct CopyTuning {
    result: TuneResult,
    kept: Option<PathBuf>,
}

impl<'r> CopyCommand<'r> {
    fn new(args: &'r CopyArgs, color: bool, sources: &'r [PathBuf], destination: &'r Path) -> Self {
        let into = args.target_directory.is_some() || args.no_target_directory;
        let is_recursive = args.recursive || args.kept.archive;
        let makes_folder =
            is_recursive && !into && !destination.is_dir() && sources.iter().all(|s| s.is_dir());
        Self { args, color, sources, destination, makes_folder }
    }

    fn copy(&self, mut options: CopyOptions) -> Result<Exit, CommandFailure> {
        let args = self.args;
        let saved = SavedProfile::use_if_current(!args.choice.no_profile, Moves::Files);
        options.profile = saved.current.clone().map(Arc::new);
        let tuned =
            if args.tune && !args.dry_run { self.tune(&saved, &mut options)? } else { None };
        let expected = if args.chosen.is_part() { None } else { self.expected() };
        let meter = ProgressMeter::new(args.shown, None, expected);
        let watcher = CopyWatcher::new(args, meter, Counting::of(self.sources, &options));
        let copied = thalweg_tree::copy(self.sources, self.destination, &options, &watcher);
        let report = copied.map_err(|error| not_started(&error));
        watcher.finish(report.as_ref().map_or(0, |report| report.bytes));
        let report = report?;
        // The rates of concurrent copies are no evidence about a single copy.
        if report.files == 1 {
            saved.learn(&report.looks);
        }
        let exit = self.exit(&report);
        let exit = match &args.manifest {
            Some(path) if matches!(exit, Ok(Exit::Done)) => self.list(path, &report),
            Some(path) => {
                complain(&format!(
                    "'{}': manifest not written, because the copy failed",
                    shown(path)
                ));
                exit
            }
            None => exit,
        };
        keep(self.report(&report, tuned.as_ref(), exit.as_ref().err()));
        // A declined `-i` makes the command fail, as in cp since coreutils 9.2.
        exit.map(|exit| match exit {
            Exit::Done if watcher.has_declined() => Exit::Failed,
            exit => exit,
        })
    }

    /// Writes the manifest of the copied files.
    fn list(&self, path: &Path, report: &TreeReport) -> Result<Exit, CommandFailure> {
        let jobs = self.args.jobs.map_or(0, |jobs| jobs as usize);
        let findings = Findings::new(self.args.shown);
        let hash = self.args.manifest_hash.into();
        let made = make_of(&report.listed, hash, jobs, path, &findings);
        findings.finish(made.as_ref().map_or(0, |made| made.account.bytes));
        manifest::publish(path, &made.map_err(|error| not_started(&error))?)
    }

    /// Measures the methods, and saves the results. A failed measurement does not prevent the copy. Sources that the
    /// copy will reject, such as a directory without `-r`, are not measured.
    fn tune(
        &self,
        saved: &SavedProfile,
        options: &mut CopyOptions,
    ) -> Result<Option<CopyTuning>, CommandFailure> {
        if self.args.chosen.is_part() {
            complain("--tune is ignored: it would also read excluded files");
            return Ok(None);
        }
        let copied = self.sources.iter().filter(|source| options.recursive || !source.is_dir());
        let copied: Vec<PathBuf> = copied.cloned().collect();
        if copied.is_empty() {
            return Ok(None);
        }
        let result = match tuning::measure(self.args, &copied, self.destination, options) {
            Ok(result) => result,
            Err(TuneError::Cancelled(_)) => return Err(interrupt::failure("nothing was copied")),
            Err(error) => {
                complain(&format!("--tune failed: {error}"));
                return Ok(None);
            }
        };
        let mut kept = None;
        if let Some(path) = &saved.path {
            match SavedProfile::extend(path, |profile| profile.merge(result.kept())) {
                Ok(_) => kept = Some(path.clone()),
                Err(error) => complain(&format!("cannot save the measurement: {error}")),
            }
        }
        // The new measurement replaces the saved profile for this copy, because it used the same files.
        let mut fresh = Profile::new();
        result.teach(&mut fresh, &mut options.request);
        options.profile = Some(Arc::new(fresh));
        if let (Some(jobs), 0) = (result.jobs, options.jobs) {
            options.jobs = jobs;
        }
        Ok(Some(CopyTuning { result, kept }))
    }

    /// Returns the bytes of the sources, if they are known without a walk.
    fn expected(&self) -> Option<u64> {
        let sizes = self.sources.iter().map(|source| {
            let meta = fs::metadata(source).ok().filter(Metadata::is_file);
            meta.map(|meta| meta.len())
        });
        sizes.sum()
    }

    /// Prints the final line, the screen of `--tune`, or the JSON object.
    fn report(
        &self,
        report: &TreeReport,
        tuned: Option<&CopyTuning>,
        failure: Option<&CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let args = self.args;
        if args.shown.json {
            let tuned = tuned.map(|tuned| &tuned.result);
            let mut answer = summary::answer(report, tuned, args.verify);
            let message = failure.map(|failure| failure.message.clone());
            answer.error = answer.error.or(message.filter(|message| !message.is_empty()));
            return text::answer(&answer.line(), AnswerStream::Output);
        }
        if args.shown.quiet {
            return Ok(());
        }
        let asked = args.debug || args.choice.names_method();
        let line = if args.dry_run {
            summary::dry_run_line(report)
        } else {
            summary::line(report, asked || tuned.is_some())
        };
        let steps = |all| summary::fallbacks(report, all);
        if let Some(CopyTuning { result, kept }) = tuned {
            let copied = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
            let end = tuning::TuneEnd { copied, kept: kept.as_deref() };
            let screen = tuning::screen(result, &end, self.color);
            return print(&(line + &steps(true) + &screen));
        }
        if args.dry_run {
            return print(&line);
        }
        // Scripts run without a terminal, and expect no output except the lines of -v. With --verify, --resume or
        // --debug, the summary is printed anyway.
        let is_watched =
            args.shown.is_watched() || args.verify.is_some() || args.resume || args.debug;
        if is_watched {
            note(line.trim_end());
        }
        let nothing = report.files + report.dirs + report.links + report.specials == 0;
        if nothing && report.left_out > 0 && report.error_count == 0 && !is_watched {
            note("nothing copied: everything is excluded");
        }
        if is_watched || asked {
            steps(asked).lines().for_each(note);
        }
        if asked {
            summary::looks(report).lines().for_each(note);
        }
        Ok(())
    }

    fn exit(&self, report: &TreeReport) -> Result<Exit, CommandFailure> {
        match (report.halted, report.ending()) {
            (None, Ending::Done) => Ok(Exit::Done),
            (None, Ending::Differ) => Err(CommandFailure::new(Exit::Differ, "")),
            (None, Ending::Partial) if report.error_count == 0 => Ok(Exit::Incomplete),
            (None, Ending::Partial) if report.unfinished.is_empty() => {
                Err(CommandFailure::new(exit_of_problems(report), ""))
            }
            (Some(Halt::Cancelled), _) => {
                let left = self.leftovers(report);
                Err(interrupt::failure(&left.state()).hint(left.hint()))
            }
            (Some(Halt::Full), _) | (None, Ending::Partial) => {
                let left = self.leftovers(report);
                Err(CommandFailure::new(left.exit(), left.state()).hint(left.hint()))
            }
        }
    }

    fn leftovers<'p>(&self, report: &'p TreeReport) -> CopyLeftovers<'p> {
        let wanted = WantedCopy {
            is_single_file: matches!(self.sources, [source] if !source.is_dir()),
            resumes: self.args.resume,
            makes_folder: self.makes_folder,
        };
        CopyLeftovers::of(report, &wanted)
    }
}

/// Returns the JSON object of a copy without `--tune` and `--verify`.
pub fn answer_of(report: &TreeReport) -> JsonAnswer {
    summary::answer(report, None, None)
}

/// Returns the failure of a copy that did not start.
fn not_started(error: &Error) -> CommandFailure {
    let exit = match error {
        Error::Usage(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    CommandFailure::new(exit, error.to_string())
}

/// Returns the exit status of a copy with errors: `Unsupported` if nothing was copied and this machine does not support
/// the request, otherwise `Failed`.
fn exit_of_problems(report: &TreeReport) -> Exit {
    let refusals = || {
        report.errors.iter().map(|error| match error {
            Error::Refused { reason, .. } => Some(reason),
            _ => None,
        })
    };
    let nothing = report.files + report.dirs + report.links + report.specials == 0;
    let all = |is: fn(&Refusal) -> bool| refusals().all(|r| r.is_some_and(is));
    if !nothing || report.errors.is_empty() {
        Exit::Failed
    } else if all(|reason| matches!(reason, Refusal::NoMechanism(_))) || not_known_here(report) {
        Exit::Unsupported
    } else {
        Exit::Failed
    }
}

/// Returns `true` if each error means that the kernel or the file system does not support the operation, as with
/// `--reflink=always`.
fn not_known_here(report: &TreeReport) -> bool {
    let unknown = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::XDEV];
    report.errors.iter().all(|error| error.errno().is_some_and(|errno| unknown.contains(&errno)))
}
