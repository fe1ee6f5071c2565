//! The first answer of a server at the other end of a byte stream: whatever it is, the client ends with a result.

use std::time::Duration;

use thalweg_serve::{
    ByteStream,
    client::{Channels, FetchOptions, FetchUrl, PeerRoot, root_of},
};
use thalweg_sys::net;

use super::watched;

/// Longest input, in bytes, so that a socket holds all of it.
const LONGEST: usize = 32 << 10;

/// Runs one input.
pub fn run(answer: &[u8]) {
    // libFuzzer's main is not Rust's, which ignores SIGPIPE.
    thalweg_sys::signal::ignore_sigpipe().expect("a handler");
    let (stream, far) = ByteStream::pair().expect("sockets");
    let answer = &answer[..answer.len().min(LONGEST)];
    assert_eq!(net::send(&far, answer), Ok(answer.len()));
    rustix::net::shutdown(&far, rustix::net::Shutdown::Write).expect("a socket");
    let options = FetchOptions {
        channels: Some(Channels::over(stream, "peer")),
        stall: Duration::from_secs(1),
        ..watched::options(None)
    };
    let target = FetchUrl::of_stream("peer:");
    if let Ok(PeerRoot::File(file)) = root_of(&target, &options, &|| Ok(())) {
        // A redirect to another server would otherwise be fetched over the stream under a foreign name.
        assert!(format!("{file:?}").contains("stream.invalid"), "{file:?}");
    }
}
