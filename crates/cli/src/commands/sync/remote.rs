//! Syncs between machines: `thalweg sync --delete SRC HOST:DST`.

use std::{ffi::OsStr, fs, path::Path, sync::Arc};
use thalweg_core::{failed::quoted, shown};
use thalweg_serve::remote::{RemoteName, encode};
use thalweg_tree::install::FollowLinks;

use super::SyncArgs;
use crate::{
    args::{MethodArgs, SelectionArgs},
    commands::fetch::{FetchArgs, OverStream, fetch_over},
    exit::{CommandFailure, Exit},
    output::change_log::ChangeLog,
    remote::{RemoteArgs, RemoteOutput, SenderNeeds, push, unsupported},
};

/// Runs the sync if a name is on another machine; otherwise returns `None`.
pub fn run(args: &SyncArgs) -> Result<Option<Exit>, CommandFailure> {
    let usage = |why: String| CommandFailure::new(Exit::Usage, why);
    let names = args.paths.iter().map(|path| RemoteName::parse(path.as_os_str()));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(|error| usage(error.to_string()))?;
    if names.iter().all(Option::is_none) {
        return Ok(None);
    }
    let ([source, destination], [from, to]) = (&args.paths[..], &names[..]) else {
        return Err(usage("cannot sync several sources to or from a remote host".to_owned())
            .hint("run one command for each source"));
    };
    if let Some(option) = refused(args) {
        return Err(usage(format!("{option} cannot be used with a remote source or destination")));
    }
    if args.reference.is_some() && (args.checksum || args.verify) {
        let why =
            "--reference cannot be used together with --checksum or --verify and another machine";
        return Err(usage(why.to_owned()));
    }
    let chosen = args.chosen.resolved()?;
    match (from, to) {
        (Some(from), None) => {
            let pull = |remote: &RemoteArgs| pull(args, &chosen, remote, from, destination);
            args.remote.with_program(from, pull).map(Some)
        }
        (None, Some(to)) => {
            let push = |remote: &RemoteArgs| push_to(args, &chosen, remote, source, to);
            args.remote.with_program(to, push).map(Some)
        }
        _ => Err(usage("source and destination cannot both be remote".to_owned())
            .hint("run thalweg on one of the two machines")),
    }
}

/// Returns the first given option that a sync between machines does not support.
fn refused(args: &SyncArgs) -> Option<&'static str> {
    unsupported!(
        args,
        SyncArgs {
            paths archive recursive hard_links acls xattrs checksum itemize verbose dry_run delete delete_excluded
            chosen given reference trash numeric_ids max_delete force durable jobs limit remote shown copy_links
            one_file_system verify no_detect_renames log
        },
        refused {
            "--detect-renames" detect_renames
        }
    )
}

fn pull(
    args: &SyncArgs,
    chosen: &SelectionArgs,
    remote: &RemoteArgs,
    name: &RemoteName,
    destination: &Path,
) -> Result<Exit, CommandFailure> {
    let fetch = FetchArgs {
        archive: true,
        all_links: true,
        sync: true,
        delete: args.deletes(),
        delete_excluded: args.delete_excluded,
        chosen: chosen.clone(),
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
        ..FetchArgs::defaults()
    };
    let from = format!("{}:{}", name.host, Path::new(&name.path).display());
    let needs = SenderNeeds { hash: args.checksum || args.verify, copy_links: args.copy_links };
    let channels = remote.channels(name, needs)?;
    fetch_over(&fetch, &OverStream { channels, from: &from, dst: destination, into: None })
}

fn push_to(
    args: &SyncArgs,
    chosen: &SelectionArgs,
    remote: &RemoteArgs,
    source: &Path,
    name: &RemoteName,
) -> Result<Exit, CommandFailure> {
    let failed =
        |error: &std::io::Error| CommandFailure::of_io("stat", &shown(source).to_string(), error);
    if !fs::metadata(source).map_err(|error| failed(&error))?.is_dir() {
        let why = format!("{}: not a directory", quoted(source));
        return Err(CommandFailure::new(Exit::Usage, why).hint("use `thalweg copy` for a file"));
    }
    let prints_changes = args.prints_changes() && !args.shown.quiet;
    let output = RemoteOutput { log: log(args)?, prints_changes, prints_summary: is_watched(args) };
    let whole = fs::canonicalize(source).map_err(|error| failed(&error))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let from = encode(OsStr::new(&format!("{host}:{}", whole.display())));
    let mut words = ["fetch", "--stdio", "--encoded", "--all-links", "-a", "--sync"]
        .map(str::to_owned)
        .to_vec();
    let given = [
        ("--delete", args.deletes()),
        ("--delete-excluded", args.delete_excluded),
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
    words.extend(chosen.words()?);
    words.extend(args.given.words());
    for (option, path) in [("--reference", &args.reference), ("--trash", &args.trash)] {
        let path = path.iter().map(|path| encode(path.as_os_str()));
        words.extend(path.map(|path| format!("{option}={path}")));
    }
    words.extend(args.max_delete.map(|most| format!("--max-delete={most}")));
    words.extend(args.jobs.map(|jobs| format!("--jobs={jobs}")));
    words.push(format!("--fsync={}", args.durable.name()));
    words.push(format!("--from={from}"));
    words.push(name.word());
    let follow = if args.copy_links { FollowLinks::Anywhere } else { FollowLinks::Never };
    push(
        &remote.logged_command(name, &words, output)?,
        source,
        &MethodArgs::default(),
        args.limit,
        follow,
    )
}

/// Opens the log.
fn log(args: &SyncArgs) -> Result<Option<Arc<ChangeLog>>, CommandFailure> {
    let log = args.log.as_deref().map(ChangeLog::open).transpose()?;
    Ok(log.map(Arc::new))
}

/// Returns `true` if the summary is printed.
fn is_watched(args: &SyncArgs) -> bool {
    (args.shown.is_watched() || args.prints_changes()) && !args.shown.quiet
}
