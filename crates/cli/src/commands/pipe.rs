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
    stream::{Finished, Stream, is_deserted, not_kept},
};
use crate::{
    args::{Choice, ProgressArgs, flag},
    exit::{Exit, Failure, INPUT, OUTPUT, transfer_error},
    interrupt, stdio,
};

/// Moves standard input to standard output and to files, with progress
///
/// Enlarges the pipes it stands between to what the kernel grants, so that the programs on either
/// side profit too. Safe by default: with --zero-copy file pages go into the pipe by reference, and
/// a change of the file before the reader reads them shows.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PipeArgs {
    /// Write the bytes into this file too; may be given several times
    #[arg(long, value_name = "FILE")]
    pub tee: Vec<PathBuf>,
    /// Append to the files of --tee instead of emptying them first
    #[arg(long, requires = "tee")]
    pub append: bool,
    /// How many bytes to expect, for the percentage and the time left
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Stop after the bytes of --size, even if there are more
    #[arg(short = 'S', long, requires = "size", conflicts_with = "tee")]
    pub stop_at_size: bool,
    /// A label for the progress line
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Move no more than this many bytes a second
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Say at the end what was moved, and by what
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg pipe < dump.sql | mysql db          progress, and a larger pipe
  thalweg pipe --zero-copy < big | reader     pages by reference: the file must not change meanwhile
  tar c . | thalweg pipe --tee a.tar | ssh host tar x
  thalweg pipe --size 1G --stop-at-size < /dev/urandom > noise
  generate | thalweg pipe --size 10G --limit 20M > file

A file of --tee that fails is reported, the others go on, and the exit status is 1.";

impl Subcommand for PipeArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, _color: bool) -> Result<Exit, Failure> {
        let (source, sink) = (stdio::input()?, stdio::output()?);
        interrupt::catch();
        let stream = Stream {
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
            expected: self.size.or_else(|| stdio::left_in(&source)),
        };
        if self.tee.is_empty() { stream.run() } else { fan_out(self, &stream) }
    }
}

/// Moves the stream into several sinks.
fn fan_out(args: &PipeArgs, stream: &Stream<'_>) -> Result<Exit, Failure> {
    stream.prepare()?;
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for path in &args.tee {
        match open(path, args.append, stream) {
            Ok(file) => files.push((shown(path).to_string(), file)),
            Err(failure) if failure.exit == Exit::Usage => return Err(failure),
            Err(failure) => problems.push(failure.message),
        }
    }
    let mut branches = vec![Branch { end: stream.sink, vital: true }];
    for (name, file) in &files {
        let end = End::of(file.as_fd()).map_err(|e| Failure::of_call("fstat", name, e))?;
        stdio::enlarge(&end);
        branches.push(Branch { end, vital: false });
    }
    let fan = Multicast { limit: stream.limit(), share_pages: args.choice.zero_copy };
    let mut meter = stream.meter();
    let outcome = fan.run(stream.source, &branches, &mut meter);
    meter.finish(outcome.report.bytes, true);
    problems.extend(outcome.error.map(|error| transfer_error(&error, INPUT, OUTPUT)));
    let names = std::iter::once(OUTPUT).chain(files.iter().map(|(name, _)| name.as_str()));
    for ((name, sink), branch) in names.zip(&outcome.sinks).zip(&branches) {
        let error = sink.error.map(|error| transfer_error(&error, INPUT, name));
        problems.extend(error.or_else(|| not_kept(&branch.end, name)));
    }
    let vital = outcome.sinks.first().and_then(|sink| sink.error);
    stream.finish(Finished {
        report: outcome.report,
        stopped: outcome.stopped,
        deserted: vital.is_some_and(|error| is_deserted(&error)),
        unavailable: Vec::new(),
        problems,
    })
}

/// Opens a file of `--tee`. It is truncated only after it is known not to be an end of this pipe.
fn open(path: &Path, append: bool, stream: &Stream<'_>) -> Result<OwnedFd, Failure> {
    let name = shown(path).to_string();
    let appending = if append { OFlags::APPEND } else { OFlags::empty() };
    let file = open_in_place(path, OFlags::WRONLY | appending);
    let file = file.map_err(|error| Failure::of_destination(error, path))?;
    let end = End::of(file.as_fd()).map_err(|e| Failure::of_call("fstat", &name, e))?;
    for (other, its_name) in [(&stream.source, INPUT), (&stream.sink, OUTPUT)] {
        if stdio::same_file(&end, other) {
            return Err(Failure::new(Exit::Usage, format!("--tee '{name}' is {its_name} itself")));
        }
    }
    if !append {
        match ftruncate(&file, 0) {
            // FIFOs and devices cannot be truncated.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(Failure::of_call("ftruncate", &name, errno)),
        }
    }
    Ok(file)
}
