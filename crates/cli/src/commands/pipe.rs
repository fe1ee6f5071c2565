//! `thalweg pipe`: moves standard input to standard output and to files.

use clap::Args;
use rustix::{
    fs::{OFlags, ftruncate},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};
use thalweg_core::{
    End,
    atomic_file::open_in_place,
    multicast::{Branch, Multicast},
    quantity::{parse_bytes, parse_rate},
    shown,
};

use super::{
    Subcommand,
    stream::{Finished, StreamCopy, close_failure, is_abandoned},
};
use crate::{
    args::{MethodArgs, ProgressArgs, flag},
    exit::{CommandFailure, Exit, INPUT, OUTPUT, transfer_failure},
    interrupt,
    output::text::AnswerStream,
    stdio,
};

/// Copy standard input to standard output and to files, with progress
///
/// thalweg enlarges the pipes at its input and output as far as the kernel permits. This also speeds up the programs at
/// the other ends of these pipes. By default, thalweg copies data that comes from a file, and moves data between two
/// pipes without a copy. With --zero-copy, it passes pages of a file into the pipe by reference: if the file changes
/// before the reader reads them, the reader sees the change.
#[derive(Args, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct PipeArgs {
    /// Also write to this file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub tee: Vec<PathBuf>,
    /// Append to the files of --tee instead of truncating them
    #[arg(long, requires = "tee")]
    pub append: bool,
    /// Expect this many bytes, to show the percentage and the remaining time
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Stop after the number of bytes that --size gives
    #[arg(short = 'S', long, requires = "size", conflicts_with = "tee")]
    pub stop_at_size: bool,
    /// Label the progress line; the field `name` of --progress=json
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Limit the rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Print a summary at the end, with the method
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub choice: MethodArgs,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg pipe < dump.sql | mysql db       progress, and a larger pipe
  thalweg pipe --zero-copy < big | reader  pages by reference
  tar c . | thalweg pipe --tee a.tar | ssh host tar x
  thalweg pipe --size 1G --stop-at-size < /dev/urandom > noise
  generate | thalweg pipe --size 10G --limit 20M > file

If a file of --tee fails, thalweg reports it, continues with the others and exits with 1.";

impl Subcommand for PipeArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn uses_color(&self) -> bool {
        false
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then_some(AnswerStream::Errors)
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let (source, sink) = (stdio::input()?, stdio::output()?);
        let left = stdio::left_in(&source);
        let is_brief = self.is_brief(left, &sink);
        if is_brief {
            interrupt::catch_if_it_lasts();
        } else {
            interrupt::catch();
        }
        let stream = StreamCopy {
            choice: &self.choice,
            shown: self.shown,
            label: self.name.as_deref(),
            limit: self.limit,
            verbose: self.verbose,
            source,
            source_name: INPUT.to_owned(),
            sink,
            sink_name: OUTPUT.to_owned(),
            len: self.size.filter(|_| self.stop_at_size),
            expected: self.size.or(left),
            needs_plan: !is_brief
                || self.choice.names_method()
                || !self.choice.no_method.is_empty(),
        };
        if self.tee.is_empty() { stream.run() } else { fan_out(self, &stream) }
    }
}

impl PipeArgs {
    /// Returns `true` if a short file is moved without waiting for another process, and the command prints neither
    /// progress nor a summary.
    fn is_brief(&self, left: Option<u64>, sink: &End<'_>) -> bool {
        let is_reported = self.verbose || self.shown.reports();
        let is_short = left.is_some_and(|left| left <= stdio::SHORT);
        self.tee.is_empty()
            && self.limit.is_none()
            && !is_reported
            && is_short
            && stdio::has_room(sink)
    }
}

/// Moves the stream into several sinks.
fn fan_out(args: &PipeArgs, stream: &StreamCopy<'_>) -> Result<Exit, CommandFailure> {
    stream.prepare()?;
    let mut failures = Vec::new();
    let mut files = Vec::new();
    for path in &args.tee {
        match open(path, args.append, stream) {
            Ok(file) => files.push((shown(path).to_string(), file)),
            Err(failure) if failure.exit == Exit::Usage => return Err(failure),
            Err(failure) => failures.push(failure),
        }
    }
    // A usage error must not cost any file its content, so truncation begins after all files were checked.
    if !args.append {
        files.retain(|(name, file)| truncate(name, file).map_err(|why| failures.push(why)).is_ok());
    }
    let mut branches = vec![Branch { end: stream.sink, vital: true }];
    for (name, file) in &files {
        let end = End::of(file.as_fd()).map_err(|e| CommandFailure::of_call("fstat", name, e))?;
        stdio::enlarge(&end, stream.expected);
        branches.push(Branch { end, vital: false });
    }
    let fan = Multicast { limit: stream.limit(), share_pages: args.choice.zero_copy };
    let mut meter = stream.meter();
    let outcome = fan.run(stream.source, &branches, &mut meter);
    meter.finish(outcome.report.bytes, true);
    failures.extend(outcome.error.map(|error| transfer_failure(&error, INPUT, OUTPUT)));
    let names = std::iter::once(OUTPUT).chain(files.iter().map(|(name, _)| name.as_str()));
    for ((name, sink), branch) in names.zip(&outcome.sinks).zip(&branches) {
        let failure = sink.error.map(|error| transfer_failure(&error, INPUT, name));
        failures.extend(failure.or_else(|| close_failure(&branch.end, name)));
    }
    let vital = outcome.sinks.first().and_then(|sink| sink.error);
    stream.finish(Finished {
        report: outcome.report,
        stopped: outcome.stopped,
        abandoned: vital.is_some_and(|error| is_abandoned(&error)),
        unavailable: Vec::new(),
        failures,
    })
}

/// Opens a file of `--tee`, and checks that it is neither the source nor the sink.
fn open(path: &Path, append: bool, stream: &StreamCopy<'_>) -> Result<OwnedFd, CommandFailure> {
    let name = shown(path).to_string();
    let appending = if append { OFlags::APPEND } else { OFlags::empty() };
    let file = open_in_place(path, OFlags::WRONLY | appending);
    let file = file.map_err(|error| CommandFailure::of_destination(error, path))?;
    let end = End::of(file.as_fd()).map_err(|e| CommandFailure::of_call("fstat", &name, e))?;
    for (other, its_name) in [(&stream.source, INPUT), (&stream.sink, OUTPUT)] {
        if stdio::same_file(&end, other) {
            return Err(CommandFailure::new(
                Exit::Usage,
                format!("--tee '{name}' is the same file as {its_name}"),
            ));
        }
    }
    Ok(file)
}

fn truncate(name: &str, file: &OwnedFd) -> Result<(), CommandFailure> {
    match ftruncate(file, 0) {
        // FIFOs and devices cannot be truncated.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(CommandFailure::of_call("ftruncate", name, errno)),
    }
}
