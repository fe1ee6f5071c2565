//! Fetches over a byte stream: a directory or a file, whichever the server serves.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::{
    client::{Channels, FetchOptions, FetchUrl, PeerRoot, Proxies, report_end, root_of},
    manifest::ListRequest,
    remote::decode,
};
use thalweg_tree::{ExcludePatterns, Filter};

use super::{FetchArgs, FetchPlace, FileProgress, failure, options, tree};
use crate::{
    commands::serve::stdio::{decoded, stream},
    exit::{CommandFailure, Exit},
    interrupt,
    output::text::note,
};

/// A fetch from the server at the other end of a stream.
pub struct OverStream<'a> {
    pub channels: Arc<Channels>,
    /// Name of the source, for messages and to continue an interrupted fetch.
    pub from: &'a str,
    pub dst: &'a Path,
    /// Name of the new entry in `dst`, if `dst` is a directory.
    pub into: Option<&'a OsStr>,
}

/// Runs `thalweg fetch --stdio`.
pub fn run(args: &FetchArgs) -> Result<Exit, CommandFailure> {
    let usage = |why: &str| CommandFailure::new(Exit::Usage, why);
    let [dst] = &args.words[..] else {
        return Err(usage("--stdio: expected one operand, the destination"));
    };
    let word = |word: &OsStr| {
        if args.encoded { decode(word, None) } else { PathBuf::from(word) }
    };
    let dst = if args.encoded { decoded(OsStr::new(dst)) } else { PathBuf::from(dst) };
    let into = args.into.as_deref().map(word);
    let from = args.from.as_ref().map(|from| word(OsStr::new(from)).display().to_string());
    let from = from.unwrap_or_else(|| "the server".to_owned());
    let (stream, _restored) = stream(args.compress)?;
    let compressed = stream.compressed().cloned();
    let channels = Channels::over(stream, &from);
    let into = into.as_ref().map(|into| into.as_os_str());
    let over = OverStream { channels, from: &from, dst: &dst, into };
    let ended = fetch_over(args, &over);
    let status = ended.as_ref().map_or_else(|failure| failure.exit, |exit| *exit).code();
    // An error is ignored here: after a lost connection, the other side fails because it received no exit status.
    let _ =
        report_end(&FetchUrl::of_stream(&from), &files(args, &over)?, status, &interrupt::check);
    // HTTP noticed only that the connection ended.
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
    let what = format!("'{}': ", thalweg_core::shown(over.from));
    let list = args.list_request(true)?;
    let root = root_of(&target, &list, &files, &interrupt::check);
    let root = root.map_err(|error| failure(&error, &what))?;
    if is_excluded(&list, over, &root) {
        note(&format!("{what}excluded"));
        return Ok(Exit::Done);
    }
    let path = place(over)?;
    let file = match root {
        PeerRoot::Directory if !args.is_of_trees() => {
            let why = format!("{what}is a directory");
            return Err(CommandFailure::new(Exit::Failed, why).hint("use -r or -a"));
        }
        PeerRoot::File(_) if args.sync => {
            let why = format!("{what}not a directory");
            return Err(CommandFailure::new(Exit::Usage, why).hint("use `thalweg copy` for a file"));
        }
        PeerRoot::Directory => return tree::fetch_into(args, &target, &path, files),
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

/// Returns the path that receives the copy.
fn place(over: &OverStream<'_>) -> Result<PathBuf, CommandFailure> {
    let Some(name) = over.into.filter(|_| over.dst.is_dir()) else {
        return Ok(over.dst.to_owned());
    };
    let is_name =
        !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/');
    if is_name {
        return Ok(over.dst.join(name));
    }
    let name: OsString = name.to_owned();
    let why = format!("--into {}: not the name of an entry", thalweg_core::shown(&name));
    Err(CommandFailure::new(Exit::Usage, why))
}
