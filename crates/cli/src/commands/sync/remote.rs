//! Syncs between machines: `thalweg sync --delete SRC HOST:DST`.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_core::{failed::quoted, shown};
use thalweg_serve::remote::{RemoteName, encode};
use thalweg_tree::install::FollowLinks;

use super::SyncArgs;
use crate::{
    args::{MethodArgs, SelectionArgs},
    commands::fetch::{FetchArgs, OverStream, fetch_over},
    exit::{CommandFailure, Exit},
    output::change_log::ChangeLog,
    remote::{
        RemoteArgs, RemoteOutput, SenderNeeds,
        direction::{Direction, not_a_directory, one_by_one, refuse_same_names},
        push, unsupported,
    },
};

/// Runs the sync if a name is on another machine; otherwise returns `None`.
pub fn run(args: &SyncArgs) -> Result<Option<Exit>, CommandFailure> {
    let usage = |why: &str| CommandFailure::new(Exit::Usage, why);
    let Some((destination, sources)) = args.paths.split_last() else { return Ok(None) };
    let Some(direction) = Direction::of(sources, destination)? else { return Ok(None) };
    if sources.is_empty() {
        return Err(usage(super::NO_DESTINATION));
    }
    if let Some(option) = refused(args) {
        let why = format!("{option} cannot be used with a remote source or destination");
        return Err(usage(&why));
    }
    if args.reference.is_some() && (args.checksum || args.verify) {
        let why =
            "between machines, --reference cannot be used together with --checksum or --verify";
        return Err(usage(why));
    }
    if sources.len() > 1 {
        check_several(args, &direction)?;
    }
    let sync = RemoteSync { args, chosen: args.chosen.resolved()?, is_one: sources.len() == 1 };
    match direction {
        Direction::Pull(names) => one_by_one(&names, |from| {
            args.remote.with_program(from, |remote| sync.pull(remote, from, destination))
        }),
        Direction::Push(to, sources) => one_by_one(sources, |source| {
            args.remote.with_program(&to, |remote| sync.push(remote, source, &to))
        }),
    }
    .map(Some)
}

/// Checks the options and names of several sources.
fn check_several(args: &SyncArgs, direction: &Direction<'_>) -> Result<(), CommandFailure> {
    // Each source has its own connection, so a deletion would not notice failures of the other sources. The directories
    // of --reference and --trash would be relative to an entry of the destination.
    let options = [
        ("--delete", args.deletes()),
        ("--filter-file", args.chosen.filter_file.is_some()),
        ("--reference", args.reference.is_some()),
        ("--trash", args.trash.is_some()),
    ];
    if let Some((option, _)) = options.into_iter().find(|(_, is_given)| *is_given) {
        let why = format!("between machines, {option} cannot be used with several sources");
        return Err(CommandFailure::new(Exit::Usage, why).hint("run one command for each source"));
    }
    let named: Vec<&Path> = match direction {
        Direction::Push(_, sources) => sources.iter().map(PathBuf::as_path).collect(),
        Direction::Pull(names) => names.iter().map(|name| Path::new(&name.path)).collect(),
    };
    check_names(&named, &args.paths)?;
    match (direction, args.paths.last()) {
        (Direction::Pull(_), Some(destination)) if !destination.is_dir() => {
            Err(not_a_directory(destination))
        }
        _ => Ok(()),
    }
}

/// A sync between this machine and another one.
struct RemoteSync<'a> {
    args: &'a SyncArgs,
    chosen: SelectionArgs,
    /// `true` if there is a single source. Several sources become entries of the destination.
    is_one: bool,
}

/// Returns the first given option that a sync between machines does not support.
fn refused(args: &SyncArgs) -> Option<&'static str> {
    unsupported!(
        args,
        SyncArgs {
            paths archive checksum itemize verbose dry_run delete delete_excluded
            chosen given reference trash max_delete force durable jobs limit remote shown copy_links
            one_file_system verify no_detect_renames detect_renames log
        },
        refused {}
    )
}

impl RemoteSync<'_> {
    fn pull(
        &self,
        remote: &RemoteArgs,
        name: &RemoteName,
        destination: &Path,
    ) -> Result<Exit, CommandFailure> {
        let args = self.args;
        let fetch = FetchArgs {
            archive: true,
            all_links: true,
            sync: true,
            delete: args.deletes(),
            delete_excluded: args.delete_excluded,
            no_detect_renames: args.deletes() && args.no_detect_renames,
            chosen: self.chosen.clone(),
            given: args.given.clone(),
            reference: args.reference.clone(),
            trash: args.trash.clone(),
            max_delete: args.max_delete,
            force: args.force,
            copy_links: args.copy_links,
            one_file_system: args.one_file_system,
            verify: args.verify,
            itemize: args.prints_changes() && !args.shown.quiet,
            log: log(args)?,
            dry_run: args.dry_run,
            hash: args.checksum,
            jobs: args.jobs,
            limit: args.limit,
            durable: args.durable,
            shown: args.shown,
            no_summary: !is_watched(args),
            into_existing: !self.is_one,
            ..FetchArgs::defaults()
        };
        let from = format!("{}:{}", name.host, Path::new(&name.path).display());
        let needs = SenderNeeds { hash: args.checksum || args.verify, copy_links: args.copy_links };
        let channels = remote.channels(name, needs)?;
        let into = entry_name(Path::new(&name.path));
        fetch_over(&fetch, &OverStream { channels, from: &from, dst: destination, into })
    }

    fn push(
        &self,
        remote: &RemoteArgs,
        source: &Path,
        name: &RemoteName,
    ) -> Result<Exit, CommandFailure> {
        let args = self.args;
        let failed = |error: &std::io::Error| {
            CommandFailure::of_io("stat", &shown(source).to_string(), error)
        };
        let is_directory = fs::metadata(source).map_err(|error| failed(&error))?.is_dir();
        let prints_changes = args.prints_changes() && !args.shown.quiet;
        let output =
            RemoteOutput { log: log(args)?, prints_changes, prints_summary: is_watched(args) };
        let whole = fs::canonicalize(source).map_err(|error| failed(&error))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let from = encode(OsStr::new(&format!("{host}:{}", whole.display())));
        let mut words = ["fetch", "--stdio", "--encoded", "--all-links", "-a", "--sync"]
            .map(str::to_owned)
            .to_vec();
        let given = [
            ("--delete", args.deletes()),
            ("--delete-excluded", args.delete_excluded),
            ("--no-detect-renames", args.deletes() && args.no_detect_renames),
            ("--into-existing", !self.is_one),
            ("--force", args.force),
            ("--itemize", output.prints_changes || output.log.is_some()),
            ("--mark-summary", output.log.is_some()),
            ("--dry-run", args.dry_run),
            ("--hash", args.checksum),
            ("--verify", args.verify),
            ("--copy-links", args.copy_links),
            ("--one-file-system", args.one_file_system),
            ("--json", args.shown.json),
            ("-q", !is_watched(args)),
        ];
        words.extend(given.into_iter().filter(|(_, is)| *is).map(|(word, _)| word.to_owned()));
        words.extend(self.chosen.words()?);
        // The entries of a single directory go into DST itself. An older thalweg would obey `--into` and nest them.
        let into = entry_name(source).filter(|_| !self.is_one || !is_directory);
        words.extend(into.map(|name| format!("--into={}", encode(name))));
        words.extend(args.given.words());
        for (option, path) in [("--reference", &args.reference), ("--trash", &args.trash)] {
            let path = path.iter().map(|path| encode(path.as_os_str()));
            words.extend(path.map(|path| format!("{option}={path}")));
        }
        let max_delete = args.max_delete.filter(|_| args.deletes());
        words.extend(max_delete.map(|most| format!("--max-delete={most}")));
        words.extend(args.jobs.map(|jobs| format!("--jobs={jobs}")));
        words.push(format!("--fsync={}", args.durable.name()));
        words.push(format!("--from={from}"));
        words.push(name.word());
        let follow = if args.copy_links { FollowLinks::Anywhere } else { FollowLinks::Never };
        push(
            &remote.push_connections(name, words, output)?,
            source,
            &MethodArgs::default(),
            args.limit,
            follow,
        )
    }
}

/// Returns the last component of a source. `None` for a home directory, and for a path that ends in `..` or `/`.
fn entry_name(source: &Path) -> Option<&OsStr> {
    source.file_name().filter(|_| !matches!(source.to_str(), Some("~" | "~/")))
}

/// Fails if a source has no name, or if two sources have one name. `given`: the sources as the user wrote them, with their
/// hosts.
fn check_names(sources: &[&Path], given: &[PathBuf]) -> Result<(), CommandFailure> {
    let sources = sources.iter().zip(given).map(|(source, given)| {
        entry_name(source).map(|name| (name, shown(given))).ok_or_else(|| {
            let why = format!("{}: cannot be one of several sources", quoted(given));
            CommandFailure::new(Exit::Usage, why).hint("write the name of the directory")
        })
    });
    refuse_same_names(sources.collect::<Result<Vec<_>, _>>()?.into_iter())
}

fn log(args: &SyncArgs) -> Result<Option<Arc<ChangeLog>>, CommandFailure> {
    let log = args.log.as_deref().map(ChangeLog::open).transpose()?;
    Ok(log.map(Arc::new))
}

/// Returns `true` if the summary is printed.
fn is_watched(args: &SyncArgs) -> bool {
    (args.shown.is_watched() || args.prints_changes()) && !args.shown.quiet
}
