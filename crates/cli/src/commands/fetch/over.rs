//! Fetches over a byte stream: a directory or a file, whichever the server serves.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_core::{
    atomic_file::{Destination, Until},
    shown,
};
use thalweg_serve::{
    client::{Channels, FetchOptions, FetchUrl, PeerRoot, Proxies, report_end, root_of},
    manifest::ListRequest,
    remote::decode,
};
use thalweg_tree::{ExcludePatterns, Filter};

use super::{
    FetchArgs, FetchPlace, FileProgress, failure, further, options,
    tree::{self, TreePlace},
};
use crate::{
    commands::serve::stdio::{decoded, stream},
    exit::{CommandFailure, Exit},
    interrupt,
    output::text::note,
    remote::direction::not_a_directory,
};

/// A fetch from the server at the other end of a stream.
pub struct OverStream<'a> {
    pub channels: Arc<Channels>,
    /// Name of the source, for messages and to continue an interrupted fetch.
    pub from: &'a str,
    pub dst: &'a Path,
    /// Name of the source. The copy has this name if it becomes an entry of `dst`.
    pub into: Option<&'a OsStr>,
}

/// Runs `thalweg fetch --stdio`.
pub fn run(args: &FetchArgs) -> Result<Exit, CommandFailure> {
    let usage = |why: &str| CommandFailure::new(Exit::Usage, why);
    let [dst] = &args.words[..] else {
        return Err(usage("--stdio: expected one operand, the destination"));
    };
    if args.join {
        let key = dst.to_str().ok_or_else(|| usage("--join: the key is not UTF-8"))?;
        return further::join(key);
    }
    let word = |word: &OsStr| {
        if args.encoded { decode(word, None) } else { PathBuf::from(word) }
    };
    let dst = if args.encoded { decoded(dst) } else { PathBuf::from(dst) };
    let into = args.into.as_deref().map(word);
    let from = args.from.as_ref().map(|from| word(OsStr::new(from)).display().to_string());
    let from = from.unwrap_or_else(|| "the server".to_owned());
    let (stream, _restored) = stream(args.compress)?;
    let compressed = stream.compressed().cloned();
    let channels = match &args.accept {
        None => Channels::over(stream, &from),
        Some(key) => further::accept(key, stream, &from, args.compress),
    };
    let into = into.as_ref().map(|into| into.as_os_str());
    let over = OverStream { channels, from: &from, dst: &dst, into };
    let ended = fetch_over(args, &over);
    let status = ended.as_ref().map_or_else(|failure| failure.exit, |exit| *exit).code();
    // This ignores an error: after a lost connection, the other side fails because it received no exit status.
    let _ =
        report_end(&FetchUrl::of_stream(&from), &files(args, &over)?, status, &interrupt::check);
    // The HTTP client noticed only that the connection ended. The compressed stream has the reason.
    match compressed.and_then(|stream| stream.failure()) {
        Some(why) => ended
            .map_err(|failure| CommandFailure { message: format!("'{from}': {why}"), ..failure }),
        None => ended,
    }
}

/// Returns the options of requests over the stream.
fn files(args: &FetchArgs, over: &OverStream<'_>) -> Result<FetchOptions, CommandFailure> {
    Ok(FetchOptions {
        channels: Some(Arc::clone(&over.channels)),
        proxies: Proxies::default(),
        // No timeout: the user may stop the process at the other end (SIGSTOP), and continue it later.
        stall: if args.stdio { Duration::MAX } else { args.stall },
        ..options(args)?
    })
}

/// Fetches the file or directory that the server serves.
pub fn fetch_over(args: &FetchArgs, over: &OverStream<'_>) -> Result<Exit, CommandFailure> {
    interrupt::catch();
    let files = files(args, over)?;
    let target = FetchUrl::of_stream(over.from);
    let what = format!("'{}': ", shown(over.from));
    let list = args.list_request(true)?;
    let root = root_of(&target, &list, &files, &interrupt::check);
    let root = root.map_err(|error| failure(&error, &what))?;
    let becomes_entry = !args.sync || args.into_existing || root != PeerRoot::Directory;
    if becomes_entry && is_excluded(&list, over, &root) {
        note(&format!("{what}excluded"));
        return Ok(Exit::Done);
    }
    let path = place(args, over, &root)?;
    let file = match root {
        PeerRoot::Directory if !args.is_of_trees() => {
            let why = format!("{what}is a directory");
            return Err(CommandFailure::new(Exit::Failed, why).hint("use -r or -a"));
        }
        PeerRoot::File(_) if args.sync => {
            let place =
                TreePlace { path: over.dst, entry: None, only: Some(only_file(args, over)?) };
            return tree::fetch_into(args, &target, &place, list, files);
        }
        PeerRoot::Directory => {
            let entry = over.into.filter(|_| path != over.dst);
            let place = TreePlace { path: &path, entry, only: None };
            return tree::fetch_into(args, &target, &place, list, files);
        }
        PeerRoot::File(file) => file,
    };
    let place = FetchPlace::Named(path.clone());
    let destination = Destination::open_until(&path, Until::Part);
    let destination = destination.map_err(|error| CommandFailure::of_destination(error, &path))?;
    let watcher = FileProgress::new(args, &path);
    let ended = file.fetch(destination, args.archive, &files, &watcher);
    args.report(ended, &target, &place, &watcher).map(|()| Exit::Done)
}

/// Returns `true` if the filters exclude the source itself, by its name.
fn is_excluded(list: &ListRequest, over: &OverStream<'_>, root: &PeerRoot) -> bool {
    let Some(name) = over.into else { return false };
    let mut patterns = ExcludePatterns::default();
    list.exclude.iter().for_each(|pattern| patterns.add(pattern.as_bytes()));
    patterns.leaves_out(&Path::new("..").join(name), *root == PeerRoot::Directory)
}

/// Returns the path of the copy: an entry of `dst`, or `dst` itself. A sync without `--into-existing` always copies to
/// `dst` itself.
fn place(
    args: &FetchArgs,
    over: &OverStream<'_>,
    root: &PeerRoot,
) -> Result<PathBuf, CommandFailure> {
    let is_directory = over.dst.is_dir();
    if args.into_existing && !is_directory {
        return Err(not_a_directory(over.dst));
    }
    let joins = if args.sync { args.into_existing } else { is_directory };
    let name = match over.into.filter(|_| joins) {
        Some(name) => name,
        None if args.sync && joins => {
            return Err(CommandFailure::new(Exit::Usage, "--into-existing: missing --into"));
        }
        None => return Ok(over.dst.to_owned()),
    };
    let path = over.dst.join(entry_name(name)?);
    let is_tree = args.sync && *root == PeerRoot::Directory;
    // If the entry is a symbolic link to a directory, a sync would change this directory.
    if is_tree && path.symlink_metadata().is_ok_and(|there| !there.is_dir()) {
        let hint = "remove it, or sync this source alone to its target";
        return Err(not_a_directory(&path).hint(hint));
    }
    Ok(path)
}

/// Returns the name if a directory can have an entry of this name: not empty, `.` or `..`, and without a slash.
fn entry_name(name: &OsStr) -> Result<&OsStr, CommandFailure> {
    let bytes = name.as_bytes();
    if !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') {
        return Ok(name);
    }
    let why = format!("--into {}: expected a name without slashes", shown(name));
    Err(CommandFailure::new(Exit::Usage, why))
}

/// Checks that a file can be synced, and returns its name.
fn only_file<'a>(args: &FetchArgs, over: &OverStream<'a>) -> Result<&'a OsStr, CommandFailure> {
    let refused = |option: &str| {
        let why = format!("'{}': not a directory; {option} requires a directory", shown(over.from));
        Err(CommandFailure::new(Exit::Usage, why))
    };
    match over.into {
        _ if args.delete => refused("--delete"),
        _ if args.chosen.filter_file.is_some() => refused("--filter-file"),
        // thalweg always passes the name. Only the command of a restricted ssh key may lack it.
        None => refused("a sync without --into"),
        Some(_) if !over.dst.is_dir() => Err(not_a_directory(over.dst)),
        Some(name) => entry_name(name),
    }
}
