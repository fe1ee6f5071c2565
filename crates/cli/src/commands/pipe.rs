//! `thalweg pipe`: standard input to standard output, and to files.

use rustix::{
    fs::{CWD, Mode, OFlags, ftruncate, openat},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};
use thalweg_core::{
    End,
    fan::{Branch, Fan},
    shown,
};

use super::stream::{Finished, Stream, is_deserted, not_kept};
use crate::{
    args::PipeArgs,
    exit::{Exit, Failure, INPUT, OUTPUT, transfer_error},
    interrupt, stdio,
};

/// Moves the stream.
pub fn run(args: &PipeArgs) -> Result<Exit, Failure> {
    let (source, sink) = (stdio::input()?, stdio::output()?);
    interrupt::catch();
    let stream = Stream {
        choice: &args.choice,
        shown: args.shown,
        label: args.name.as_deref(),
        limit: args.limit,
        verbose: args.verbose,
        source,
        source_name: INPUT.to_owned(),
        sink,
        sink_name: OUTPUT.to_owned(),
        len: args.size.filter(|_| args.stop_at_size),
        expected: args.size.or_else(|| stdio::left_in(&source)),
    };
    if args.tee.is_empty() { stream.run() } else { fan_out(args, &stream) }
}

/// The same into several sinks.
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
    let fan = Fan { limit: stream.limit(), share_pages: args.choice.zero_copy };
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

/// Opens a file of `--tee`. It is emptied only once it is known not to be an end of this pipe.
fn open(path: &Path, append: bool, stream: &Stream<'_>) -> Result<OwnedFd, Failure> {
    let name = shown(path).to_string();
    let appending = if append { OFlags::APPEND } else { OFlags::empty() };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | appending;
    let file = openat(CWD, path, flags, Mode::from_raw_mode(0o666));
    let file = file.map_err(|e| Failure::of_call("open", &name, e))?;
    let end = End::of(file.as_fd()).map_err(|e| Failure::of_call("fstat", &name, e))?;
    for (other, its_name) in [(&stream.source, INPUT), (&stream.sink, OUTPUT)] {
        if stdio::same_file(&end, other) {
            return Err(Failure::new(Exit::Usage, format!("--tee '{name}' is {its_name} itself")));
        }
    }
    if !append {
        match ftruncate(&file, 0) {
            // FIFOs and devices have nothing to cut off.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(Failure::of_call("ftruncate", &name, errno)),
        }
    }
    Ok(file)
}
