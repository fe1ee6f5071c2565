//! A copy or sync from a hostile program at the other end of a byte stream. The copy or sync changes nothing outside of
//! the destination, and deletes nothing unless everything arrived. A dry run changes nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::{
    ByteStream,
    client::{
        Channels, FetchOptions, FetchUrl, PeerRoot, RemoteCommand, root_of,
        tree::{TreeDestination, TreeFetched, TreeOptions, TreeSync, fetch_tree},
    },
    manifest::ListRequest,
};
use thalweg_tree::sync::DeleteOptions;

use crate::{
    scripted::PATIENCE,
    snapshot::{expect_names, snapshot},
    watched::{Watched, options},
};

// Bits of the first byte.
const ROOT: u8 = 1;
const DELETE: u8 = 2;
const DRY_RUN: u8 = 4;
const BY_HASH: u8 = 8;
const OWNER: u8 = 16;
const EXISTING: u8 = 32;
const COMMAND: u8 = 64;
const FORCE: u8 = 128;

/// An existing file that a filter excludes.
const PROTECTED: &str = "kept";
/// The requested file, if the server serves a single one.
const ONLY: &str = "a";
/// The time of existing files. Seeds list files with this time, which are then unchanged.
const LISTED_TIME: Duration = Duration::new(1, 2);
/// Separates two answers.
const NEXT_ANSWER: u8 = 0xff;

/// Runs one input: a byte of options, then the answers of the peer.
pub fn run(bytes: &[u8]) {
    let Some((mode, answers)) = bytes.split_first() else { return };
    let is_set = |bit: u8| mode & bit != 0;
    // Rust's own `main` would ignore SIGPIPE, but libFuzzer's `main` does not.
    thalweg_sys::signal::ignore_sigpipe().expect("a handler");
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    prepare(place, is_set(EXISTING));
    let outside = snapshot(&place.join("outside"));
    let before = snapshot(&place.join("to"));
    let channels = channels(place, answers, is_set(COMMAND));
    // A retry costs half a second, so only one value of the first byte allows it.
    let retries = u32::from(*mode == COMMAND | OWNER);
    let files = FetchOptions {
        channels: Some(channels),
        stall: Duration::from_secs(1),
        retries,
        ..options(None)
    };
    let target = FetchUrl::of_stream("peer:");
    if is_set(ROOT) && is_file(&target, &place.join("to"), &files) {
        assert_eq!(snapshot(&place.join("outside")), outside);
        return expect_names(place, &["to", "outside", "answers"], ".to.");
    }
    let options = tree_options(is_set, files, place.join("to"));
    let destination = TreeDestination::open(&place.join("to")).expect("a directory");
    let fetched = fetch_tree(&target.as_directory(), destination, &options, &Watched);
    assert_eq!(snapshot(&place.join("outside")), outside);
    expect_names(place, &["to", "outside", "answers"], ".to.thalweg-part");
    let after = snapshot(&place.join("to"));
    if is_set(DRY_RUN) {
        assert_eq!(after, before);
    }
    // Whatever the peer lists, the filter protects this entry.
    let protected = place.join("to").join(PROTECTED);
    assert_eq!(after.get(&protected), before.get(&protected));
    // A file that replaces the directory `b` is fetched after the deletion. The deletion was therefore allowed, even if
    // this file then fails.
    let is_replaced = !place.join("to/b").is_dir();
    let may_delete =
        fetched.as_ref().is_ok_and(|fetched| is_set(FORCE) || is_replaced || is_complete(fetched));
    if is_set(DELETE) && is_set(BY_HASH) {
        // Only this file may be created or replaced.
        let others = |all| without(all, &place.join("to").join(ONLY));
        assert_eq!(others(after), others(before), "{fetched:?}");
    } else if !(is_set(DELETE) && may_delete) {
        // An entry may be replaced, but its name stays.
        assert!(before.keys().all(|path| after.contains_key(path)), "{fetched:?}");
    }
    match fetched {
        Ok(fetched) => fetched.missed.iter().for_each(|missed| drop(missed.error.to_string())),
        Err(error) => drop(error.to_string()),
    }
}

/// Returns a snapshot without one file and without partial files, which may remain.
fn without(mut all: BTreeMap<PathBuf, Vec<u8>>, file: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let is_part = |path: &Path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    all.retain(|path, _| path != file && !is_part(path));
    all
}

/// Returns the options of a tree fetch into `path`.
fn tree_options(is_set: impl Fn(u8) -> bool, files: FetchOptions, path: PathBuf) -> TreeOptions {
    let deletion = DeleteOptions { force: is_set(FORCE), ..DeleteOptions::default() };
    let delete = is_set(DELETE).then_some(deletion);
    let dry_run = is_set(DRY_RUN);
    let sync = TreeSync { delete, detects_renames: true, dry_run, path, kept: None };
    let is_sync = is_set(DELETE) || is_set(DRY_RUN);
    TreeOptions {
        jobs: 2,
        all_links: true,
        sync: is_sync.then_some(sync),
        owner: is_set(OWNER),
        hard_links: is_set(OWNER),
        by_hash: is_set(BY_HASH),
        most_list: 1 << 20,
        list: ListRequest {
            exclude: vec![PROTECTED.into()],
            xattrs: is_set(OWNER),
            specials: is_set(OWNER),
            filter_file: (is_set(BY_HASH) && is_set(OWNER)).then(|| ".f".into()),
            copy_links: is_set(FORCE),
            one_file_system: is_set(OWNER),
            as_entry: false,
        },
        only: (is_set(DELETE) && is_set(BY_HASH)).then(|| ONLY.into()),
        ..TreeOptions::new(files)
    }
}

fn is_complete(fetched: &TreeFetched) -> bool {
    fetched.halted.is_none() && fetched.missed_count == 0 && fetched.left_out == 0
}

/// Makes a destination with entries of each type. A link leads to a directory outside.
fn prepare(place: &Path, exists: bool) {
    fs::create_dir(place.join("outside")).expect("a directory");
    fs::write(place.join("outside/keep"), "outside").expect("a file");
    if !exists {
        return;
    }
    let to = place.join("to");
    fs::create_dir_all(to.join("b")).expect("a directory");
    for name in ["a", "z", "b/c", PROTECTED] {
        fs::write(to.join(name), "abc").expect("a file");
        let file = fs::File::options().append(true).open(to.join(name)).expect("a file");
        file.set_modified(UNIX_EPOCH + LISTED_TIME).expect("a time");
    }
    for name in ["l", "b/l"] {
        symlink(place.join("outside"), to.join(name)).expect("a link");
    }
}

/// Returns channels to a peer that plays the answers: one for each request on a stream, or all at once from a command.
fn channels(place: &Path, answers: &[u8], is_command: bool) -> Arc<Channels> {
    if is_command {
        let file = place.join("answers");
        fs::write(&file, answers).expect("a file");
        let script = "cat \"$0\"; echo why >&2; exit 3";
        let words = ["sh", "-c", script].map(Into::into).into_iter().chain([file.into()]);
        let command = RemoteCommand::new(words.collect(), "peer".to_owned(), Arc::new(|_| {}));
        return Channels::by_command(command, 2);
    }
    played(answers)
}

/// Returns channels to a peer that plays these answers, one for each request.
pub(crate) fn played(answers: &[u8]) -> Arc<Channels> {
    let (stream, far) = ByteStream::pair().expect("sockets");
    let answers: Vec<_> = answers.split(|byte| *byte == NEXT_ANSWER).map(<[u8]>::to_vec).collect();
    // The thread ends with the stream.
    thread::spawn(move || play(UnixStream::from(far), answers));
    Channels::over(stream, "peer")
}

/// Writes one answer after each request.
fn play(mut stream: UnixStream, answers: Vec<Vec<u8>>) {
    // The client has no time limit while it waits for its first answer, because a login may take long. This timeout
    // ends such a wait.
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (mut requests, mut buffer) = (Vec::new(), [0; 4096]);
    for answer in answers {
        let end = loop {
            if let Some(at) = requests.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => requests.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        };
        requests.drain(..end);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Fetches the file if the peer serves a single one. Returns `true` if it does, or if the peer failed.
fn is_file(target: &FetchUrl, to: &Path, options: &FetchOptions) -> bool {
    match root_of(target, &ListRequest::default(), options, &|| Ok(())) {
        Ok(PeerRoot::Directory) => false,
        Ok(PeerRoot::File(file)) => {
            let path = if to.is_dir() { to.join("a") } else { to.to_owned() };
            let Ok(destination) = Destination::open_until(&path, Until::Part) else { return true };
            if let Err(failure) = file.fetch(destination, true, options, &Watched) {
                drop(failure.error.to_string());
            }
            true
        }
        Err(error) => {
            drop(error.to_string());
            true
        }
    }
}
