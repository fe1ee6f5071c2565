//! `thalweg fetch -r`: fetches a directory from `thalweg serve`.

use std::{
    ffi::OsStr,
    fmt::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use thalweg_core::{Cancelled, Report, Side, atomic_file::Fsync, failed::quoted, shown};
use thalweg_serve::client::{
    FetchError, FetchOptions, FetchUrl,
    tree::{Missed, TreeDestination, TreeFetched, TreeOptions, TreeSync, TreeWatcher, fetch_tree},
};
use thalweg_serve::manifest::ListRequest;
use thalweg_tree::{
    Progress, SyncChange, Total,
    sync::{DeleteOptions, DeleteRefusal, open_kept},
};

use super::{AGAIN, FetchArgs, by, failure, warn_of_refused, with_next};
use crate::{
    exit::{CommandFailure, Exit, advice, advice_on_refusal},
    interrupt,
    output::{
        answer::{JsonAnswer, SyncAnswer, TreeAnswer},
        change_log::ChangeLog,
        itemized, quantity,
        summary_words::{add_counts, count, sync_summary, time_and_rate},
        text::{self, AnswerStream, complain, keep, note, print_line},
    },
    progress::ProgressMeter,
    remote,
};

/// Fetches the directory at the URL.
pub fn run(
    args: &FetchArgs,
    targets: &[FetchUrl],
    destination: Option<PathBuf>,
    files: FetchOptions,
) -> Result<Exit, CommandFailure> {
    let usage = |why: &str| Err(CommandFailure::new(Exit::Usage, why));
    let [target] = targets else { return usage("-r requires a single URL") };
    if !files.expected.is_empty() || args.sums.is_some() {
        return usage("--sha256, --blake3 and --sums cannot be used with -r");
    }
    let target = target.as_directory();
    let path = match destination {
        Some(path) if path.as_os_str() == "-" => {
            return usage("-r cannot write to standard output; use `thalweg fetch URL?tar -`");
        }
        Some(path) => path,
        None => target.directory_name().map(PathBuf::from).ok_or_else(|| {
            CommandFailure::new(
                Exit::Usage,
                format!("'{target}': the URL contains no name; name a destination"),
            )
        })?,
    };
    interrupt::catch();
    let place = TreePlace { path: &path, entry: None, only: None };
    fetch_into(args, &target, &place, args.list_request(false)?, files)
}

/// The destination of a directory.
pub struct TreePlace<'a> {
    pub path: &'a Path,
    /// Name of this directory, if it is an entry of the user's DST. The printed paths of changes begin with this name.
    pub entry: Option<&'a OsStr>,
    /// The name of the file if the server serves a single file.
    pub only: Option<&'a OsStr>,
}

/// Fetches the directory.
pub fn fetch_into(
    args: &FetchArgs,
    target: &FetchUrl,
    &TreePlace { path, entry, only }: &TreePlace<'_>,
    list: ListRequest,
    files: FetchOptions,
) -> Result<Exit, CommandFailure> {
    let options = TreeOptions {
        jobs: args.jobs.map_or(0, |jobs| jobs as usize),
        owner: args.archive,
        hard_links: args.archive,
        all_links: args.all_links,
        by_hash: args.hash,
        most_list: args.max_list,
        limits: args.chosen.limits,
        given: args.given.attributes(args.encoded)?,
        reference: args.path_of(args.reference.as_deref()),
        sync: args.sync.then(|| sync(args, path)).transpose()?,
        only: only.map(|name| name.as_bytes().to_vec()),
        list,
        files,
    };
    let begun = |error: FetchError| begun(&error, target, path);
    let place = TreeDestination::open(path).map_err(begun)?;
    let watcher = TreeProgress::new(args, entry);
    let fetched = fetch_tree(target, place, &options, &watcher);
    watcher.finish();
    match fetched {
        Ok(fetched) => ended(args, path, &fetched),
        Err(error) => {
            let failure = begun(error);
            if args.shown.json {
                let error = Some(failure.one_line());
                show(args, &JsonAnswer { error, ..JsonAnswer::of(&Report::default()) });
            }
            Err(failure)
        }
    }
}

/// Returns the options of a sync.
fn sync(args: &FetchArgs, path: &Path) -> Result<TreeSync, CommandFailure> {
    let delete = DeleteOptions {
        excluded: args.delete_excluded,
        most: args.max_delete,
        force: args.force,
        one_file_system: args.one_file_system,
        fsync: args.durable.wanted() == Fsync::Always,
        ..DeleteOptions::default()
    };
    let delete = args.delete.then_some(delete);
    // A dry run must not create the trash, so it ignores a trash that does not exist.
    let trash = args.path_of(args.trash.as_deref());
    let trash = trash.filter(|trash| !args.dry_run || trash.is_dir());
    let kept = trash.map(|trash| open_kept(&trash, args.durable.wanted(), path)).transpose();
    let kept = kept.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
    let (detects_renames, dry_run) = (!args.no_detect_renames, args.dry_run);
    Ok(TreeSync { delete, detects_renames, dry_run, path: path.to_owned(), kept })
}

fn begun(error: &FetchError, target: &FetchUrl, path: &Path) -> CommandFailure {
    match error {
        FetchError::Destination(error) => CommandFailure::of_destination(*error, path),
        FetchError::Moved(error) if error.side != Side::Source => unwritten(error, path),
        FetchError::Unsupported(_) | FetchError::Usage(_) => failure(error, ""),
        error => failure(error, &format!("'{}': ", shown(&target.to_string()))),
    }
}

/// Formats an error in writing below the destination.
fn unwritten(error: &thalweg_core::Error, path: &Path) -> CommandFailure {
    let text = error.between("the connection", &quoted(path));
    CommandFailure::new(Exit::Failed, text).hint(advice(error.errno))
}

/// Prints the results.
fn ended(args: &FetchArgs, path: &Path, fetched: &TreeFetched) -> Result<Exit, CommandFailure> {
    for Missed { path: below, error } in &fetched.missed {
        let at = path.join(OsStr::from_bytes(below));
        let message = match error {
            FetchError::Destination(error) => {
                CommandFailure::of_destination(*error, &at).one_line()
            }
            error => format!("{}: {error}", quoted(&at)),
        };
        complain(&message);
    }
    warn_of_refused(fetched.refused_xattrs, path);
    let failure = left(path, fetched);
    let error = failure.as_ref().map(CommandFailure::one_line);
    if args.shown.json {
        let tree = TreeAnswer {
            links: fetched.links,
            specials: fetched.specials,
            unchanged: fetched.unchanged,
            failed: fetched.missed_count,
            left_out: fetched.left_out,
        };
        let answer = JsonAnswer::of(&fetched.report);
        let sync = args.sync.then(|| sync_answer(fetched));
        let attributes_dropped = fetched.refused_xattrs;
        let answer = JsonAnswer {
            files: fetched.files,
            attributes_dropped,
            tree: Some(tree),
            sync,
            error,
            ..answer
        };
        show(args, &answer);
    }
    if fetched.halted.is_none() {
        summarize(args, path, fetched);
    }
    failure.map_or(Ok(Exit::Done), Err)
}

/// Prints and logs the summary.
fn summarize(args: &FetchArgs, path: &Path, fetched: &TreeFetched) {
    let words = if args.sync {
        let transferred = (fetched.report.bytes, fetched.report.wall);
        let transferred = (!args.dry_run).then_some(transferred);
        sync_summary(&sync_answer(fetched), fetched.excluded, transferred)
    } else {
        words(fetched, path, args.verbose)
    };
    if let Some(log) = &args.log {
        log.line(&words);
    }
    if args.mark_summary {
        note(&format!("{}{words}", remote::SUMMARY));
    } else if !args.no_summary && !args.shown.quiet && (args.verbose || !args.shown.json) {
        note(&words);
    }
}

/// Prints the JSON answer: on standard error with `--stdio`, because standard output is then the connection.
fn show(args: &FetchArgs, answer: &JsonAnswer) {
    keep(text::answer(&answer.line(), AnswerStream::beside(args.stdio)));
}

/// Returns the failure that describes missing entries, with advice; `None` if nothing is missing.
fn left(path: &Path, fetched: &TreeFetched) -> Option<CommandFailure> {
    if let Some(error) = &fetched.halted {
        let mut failure = match error {
            FetchError::Destination(error) => CommandFailure::of_destination(*error, path),
            FetchError::Moved(error) if error.side != Side::Source => unwritten(error, path),
            error => failure(error, &format!("{}: ", quoted(path))),
        };
        let _ = write!(failure.message, "; {} fetched", files(fetched.files));
        if let Some(name) = &fetched.kept {
            let kept = path.with_file_name(OsStr::from_bytes(name.to_bytes()));
            let _ = write!(failure.message, ", kept in {}", quoted(&kept));
        }
        failure.hint = with_next(&failure.hint, AGAIN);
        if failure.exit == Exit::Failed {
            failure.exit = Exit::Incomplete;
        }
        return Some(failure);
    }
    let (missed, left_out) = (fetched.missed_count, fetched.left_out);
    // If the deletion is refused, entries that would replace directories fail, too. The message then has only the
    // cause.
    let refused = fetched.deletion.as_ref().and_then(|deletion| deletion.refused.as_ref());
    let is_cause = refused.is_some_and(|refused| !matches!(refused, DeleteRefusal::Failures(_)));
    if missed + left_out == 0 || is_cause {
        return undeleted(path, fetched);
    }
    let mut parts = Vec::new();
    if missed > 0 {
        let entries = quantity::count(missed, "entry", "entries");
        parts.push(format!("{entries} failed"));
    }
    if left_out > 0 {
        let entries = quantity::count(left_out, "entry", "entries");
        parts.push(format!("{entries} not sent by the server (unreadable or special files)"));
    }
    let text = format!("{}: incomplete: {}", quoted(path), parts.join(", "));
    let may_come = fetched.later > 0 && fetched.later == missed && left_out == 0;
    Some(if may_come {
        CommandFailure::new(Exit::Incomplete, text).hint(AGAIN)
    } else {
        CommandFailure::new(Exit::Failed, text)
    })
}

/// Returns the failure of a deletion; `None` if everything was deleted, or no deletion was requested.
fn undeleted(path: &Path, fetched: &TreeFetched) -> Option<CommandFailure> {
    let deletion = fetched.deletion.as_ref()?;
    if let Some(refused) = &deletion.refused {
        let why = format!("{}: nothing was deleted: {refused}", quoted(path));
        return Some(CommandFailure::new(Exit::Failed, why).hint(advice_on_refusal(refused)));
    }
    if deletion.halted.is_some() {
        return Some(interrupt::failure("not everything was deleted").hint(AGAIN));
    }
    let failed = deletion.errors.len() as u64;
    (failed > 0).then(|| {
        let entries = quantity::count(failed, "entry", "entries");
        let why = format!("{}: {entries} could not be deleted", quoted(path));
        CommandFailure::new(Exit::Failed, why)
    })
}

fn sync_answer(fetched: &TreeFetched) -> SyncAnswer {
    let deletion = fetched.deletion.as_ref();
    let refused = deletion.and_then(|deletion| deletion.refused.as_ref());
    SyncAnswer {
        created: fetched.created,
        changed: fetched.changed,
        deleted: deletion.map_or(0, |deletion| deletion.deleted),
        unchanged: fetched.unchanged,
        linked: fetched.referenced,
        failed: fetched.missed_count,
        refused: refused.map(ToString::to_string),
    }
}

/// Returns text such as `12 files, 3 links fetched into 'photos' (1.2 GiB) in 4.0 s, 300.0 MiB/s, 80 unchanged`.
fn words(fetched: &TreeFetched, path: &Path, is_verbose: bool) -> String {
    let report = &fetched.report;
    let mut text = files(fetched.files);
    let others =
        [(fetched.links, "link", "links"), (fetched.specials, "special file", "special files")];
    for (number, one, many) in others.into_iter().filter(|(number, ..)| *number > 0) {
        let _ = write!(text, ", {}", count(number, one, many));
    }
    let _ = write!(
        text,
        " fetched into {} ({}){}",
        quoted(path),
        quantity::bytes(report.bytes),
        time_and_rate(report.bytes, report.wall)
    );
    if fetched.resumed > 0 {
        let _ = write!(text, ", {} from an earlier run", quantity::bytes(fetched.resumed));
    }
    add_counts(&mut text, &[(fetched.unchanged, "unchanged"), (fetched.excluded, "excluded")]);
    if is_verbose {
        text += &by(report);
    }
    text
}

fn files(number: u64) -> String {
    count(number, "file", "files")
}

/// Shows progress and messages.
struct TreeProgress {
    meter: Mutex<ProgressMeter>,
    is_quiet: bool,
    itemizes: bool,
    log: Option<Arc<ChangeLog>>,
    /// See [`TreePlace::entry`].
    entry: Option<PathBuf>,
    /// `true` if standard output is the connection.
    is_stdio: bool,
}

impl TreeProgress {
    fn new(args: &FetchArgs, entry: Option<&OsStr>) -> Self {
        let mut meter = ProgressMeter::new(args.shown, None, None);
        meter.listen();
        Self {
            meter: Mutex::new(meter),
            is_quiet: args.shown.quiet,
            itemizes: args.itemize,
            log: args.log.clone(),
            entry: entry.map(PathBuf::from),
            is_stdio: args.stdio,
        }
    }

    fn finish(&self) {
        self.meter().finish(0, false);
    }

    fn meter(&self) -> MutexGuard<'_, ProgressMeter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeWatcher for TreeProgress {
    fn total(&self, total: Total) {
        self.meter().know(|state| state.tree.get_or_insert_default().total = Some(total));
    }

    fn progress(&self, now: Progress) -> Result<(), Cancelled> {
        self.meter().show_tree(now);
        interrupt::check()
    }

    fn changed(&self, change: &SyncChange<'_>) {
        let path = match &self.entry {
            Some(entry) if change.path == Path::new(".") => entry.clone(),
            Some(entry) => entry.join(change.path),
            None => change.path.to_owned(),
        };
        let line = itemized::line(&SyncChange { path: &path, ..*change });
        if let Some(log) = &self.log {
            log.line(&line);
        }
        if !self.itemizes {
            return;
        }
        self.meter().suspend(|| {
            if self.is_stdio {
                note(&format!("{}{line}", remote::CHANGE));
            } else {
                print_line(&line);
            }
        });
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        interrupt::check()
    }

    fn report(&self, message: &str) {
        if !self.is_quiet {
            self.meter().suspend(|| complain(&shown(message).to_string()));
        }
    }
}
