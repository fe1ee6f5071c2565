//! The answers of a server at the other end of a byte stream: the client must end with a result, whatever it receives.

use std::{fs, time::Duration};

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::{
    client::{FetchOptions, FetchUrl, PeerFile, PeerRoot, root_of},
    manifest::ListRequest,
};

use super::{
    stream::played,
    watched::{self, Watched},
};

/// Runs one input: the answers to the requests, separated by the byte 0xff.
pub fn run(answers: &[u8]) {
    // Rust's own `main` would ignore SIGPIPE, but libFuzzer's `main` does not.
    thalweg_sys::signal::ignore_sigpipe().expect("a handler");
    let options = FetchOptions {
        channels: Some(played(answers)),
        stall: Duration::from_secs(1),
        ..watched::options(None)
    };
    let target = FetchUrl::of_stream("peer:");
    if let Ok(PeerRoot::File(file)) =
        root_of(&target, &ListRequest { xattrs: true, ..ListRequest::default() }, &options, &|| {
            Ok(())
        })
    {
        // A redirect to another server must have failed. Otherwise the client would fetch that server's file over this
        // stream.
        assert!(format!("{file:?}").contains("stream.invalid"), "{file:?}");
        replace(&file, &options);
    }
}

/// Fetches the file over an older one, which may contain some of its blocks. After a failure, the older file is
/// unchanged.
fn replace(file: &PeerFile, options: &FetchOptions) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("f");
    let older = vec![7; 70_000];
    fs::write(&path, &older).expect("a file");
    let Ok(destination) = Destination::open_until(&path, Until::Part) else { return };
    match file.fetch(destination, false, options, &Watched) {
        Ok(fetched) => assert_eq!(fs::metadata(&path).expect("the file").len(), fetched.bytes),
        Err(_) => assert_eq!(fs::read(&path).expect("the older file"), older),
    }
}
