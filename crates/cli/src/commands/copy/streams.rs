//! `thalweg copy` from standard input and to standard output.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use thalweg_core::{End, shown};
use thalweg_tree::{CopyOptions, Dereference, Target};

use super::{CopyArgs, CopyCommand, is_dash};
use crate::{
    commands::stream::StreamCopy,
    exit::{CommandFailure, Exit, INPUT, OUTPUT},
    output::text::{complain, print},
    stdio,
};

/// Executes `copy FILE -`.
pub fn to_standard_output(args: &CopyArgs, sources: &[PathBuf]) -> Result<Exit, CommandFailure> {
    let usage = |message: &str| Err(CommandFailure::new(Exit::Usage, message));
    let [path] = sources else { return usage("cannot copy several sources to standard output") };
    let reads_back = args.verify.is_some() || args.manifest.is_some();
    if reads_back || args.resume || args.target_directory.is_some() {
        return usage("--verify, --manifest, --resume and -t cannot be used with standard output");
    }
    if args.tune {
        complain("--tune is ignored: standard output cannot be written twice");
    }
    if args.dry_run {
        let from = if is_dash(path) { INPUT.to_owned() } else { format!("'{}'", shown(path)) };
        if !is_dash(path) {
            fs::metadata(path).map_err(|e| CommandFailure::of_io("stat", &from, &e))?;
        }
        return print(&format!("would copy {from} -> {OUTPUT}\n")).map(|()| Exit::Done);
    }
    let sink = stdio::output()?;
    let (name, file) = if is_dash(path) {
        (INPUT.to_owned(), None)
    } else {
        let name = shown(path).to_string();
        let file = File::open(path).map_err(|e| CommandFailure::of_io("open", &name, &e))?;
        (name, Some(file))
    };
    let source = match &file {
        Some(file) => {
            End::of(file.as_fd()).map_err(|e| CommandFailure::of_call("fstat", &name, e))?
        }
        None => stdio::input()?,
    };
    let stream = StreamCopy {
        choice: &args.choice,
        shown: args.shown,
        label: None,
        limit: args.limit,
        verbose: args.is_verbose(),
        source,
        source_name: name,
        sink,
        sink_name: OUTPUT.to_owned(),
        len: None,
        expected: stdio::left_in(&source),
        needs_plan: true,
    };
    stream.run()
}

/// Executes `copy - FILE`. Opens standard input again by its path, and copies it like any other source.
pub fn from_standard_input(
    args: &CopyArgs,
    options: CopyOptions,
    sources: &[PathBuf],
    destination: &Path,
    color: bool,
) -> Result<Exit, CommandFailure> {
    let usage = |message: &str| Err(CommandFailure::new(Exit::Usage, message));
    if sources.len() > 1 {
        return usage("cannot copy standard input together with other sources");
    }
    if args.interactive || args.recursive || args.kept.archive || args.resume {
        return usage("-i, -r, -a and --resume cannot be used with standard input");
    }
    if args.target_directory.is_some() || destination.is_dir() {
        return usage("standard input has no name: the destination must be a file");
    }
    let input = stdio::input()?;
    if !args.dry_run {
        stdio::enlarge(&input, None);
    }
    let Some(source) = stdio::reopenable(&input) else {
        let message =
            "standard input cannot be opened again: it is a socket, or a file that was partly read";
        return Err(
            CommandFailure::new(Exit::Unsupported, message).hint("use `thalweg pipe > DST`")
        );
    };
    let options = CopyOptions {
        dereference: Some(Dereference::Always),
        target: Target::Exact,
        new_mode: Some(0o666),
        ..options
    };
    let exit = CopyCommand::new(args, color, &[source], destination).copy(options)?;
    if !args.dry_run {
        stdio::skip_all(&input);
    }
    Ok(exit)
}
