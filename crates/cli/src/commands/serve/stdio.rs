//! `thalweg serve --stdio`: one connection over standard input and output.

use rustix::{stdio::stdin, termios::isatty};
use std::{env, path::PathBuf};
use thalweg_serve::{
    ByteStream,
    remote::decode,
    server::{RunningServer, ServeOptions, Timeouts},
};

use super::ServeArgs;
use crate::{
    exit::{CommandFailure, Exit, INPUT, OUTPUT},
    profile::{Moves, SavedProfile},
    stdio::expect_open,
};

/// Serves until the client closes its side.
pub fn run(args: &ServeArgs) -> Result<Exit, CommandFailure> {
    let (stream, _restored) = stream(args.compress)?;
    let compressed = stream.compressed().cloned();
    let saved = SavedProfile::use_if_current(!args.choice.no_profile, Moves::Streams);
    let root = if args.encoded { decoded(args.root.as_os_str()) } else { args.root.clone() };
    let options = ServeOptions {
        root,
        streams: vec![stream],
        log: None,
        timeouts: Timeouts::NONE,
        ..args.options(saved, Vec::new())?
    };
    let server = RunningServer::start(options);
    server.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?.join();
    match compressed.and_then(|stream| stream.finish()) {
        Some(failure) => Err(CommandFailure::new(Exit::Failed, format!("the client: {failure}"))),
        None => Ok(Exit::Done),
    }
}

/// Returns standard input and output as one byte stream. Fails if standard input is a terminal.
pub fn stream(
    compress: bool,
) -> Result<(ByteStream, thalweg_serve::RestoredFlags), CommandFailure> {
    expect_open(0, INPUT)?;
    expect_open(1, OUTPUT)?;
    if isatty(stdin()) {
        let why = "--stdio: standard input is a terminal; another thalweg must run this command";
        return Err(CommandFailure::new(Exit::Usage, why));
    }
    let (stream, restored) =
        ByteStream::standard().map_err(|errno| CommandFailure::of_call("fcntl", INPUT, errno))?;
    let stream = if compress { stream.compress() } else { Ok(stream) };
    let failed = |errno| CommandFailure::of_call("socketpair", INPUT, errno);
    Ok((stream.map_err(failed)?, restored))
}

/// Decodes a percent-encoded path, and expands `~` to the home directory.
pub fn decoded(word: &std::ffi::OsStr) -> PathBuf {
    let home = env::var_os("HOME").map(PathBuf::from);
    decode(word, home.as_deref())
}
