//! `thalweg verify`: compares a copy with its source.

use serde_json::json;
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_core::shown;
use thalweg_tree::{
    Error, Hash,
    compare::{CompareOptions, Comparison, Into, compare},
    manifest::{CheckOptions, Manifest, TreeAttributes, check},
};

use super::Subcommand;
use crate::{
    exit::{CommandFailure, Exit, INPUT},
    interrupt,
    output::{
        answer::SCHEMA,
        quantity,
        summary_words::{count, time_and_rate},
        text::{self, AnswerStream, keep, note, print},
    },
    stdio::expect_open,
};

mod args;
mod findings;

pub use args::VerifyArgs;
pub use findings::Findings;

impl Subcommand for VerifyArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then_some(AnswerStream::Output)
    }

    fn failed_answer(&self, error: &str) -> String {
        answer(&Comparison::default(), Some(error))
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        interrupt::catch();
        if let Some(manifest) = &self.manifest {
            return against_manifest(self, manifest);
        }
        let (sources, destination) = operands(self)?;
        let options = CompareOptions {
            into: match (&self.into, self.no_target_directory) {
                (Some(_), _) => Into::Folder,
                (None, true) => Into::Itself,
                (None, false) => Into::Guess,
            },
            attributes: self.attributes,
            cold: self.cold,
            jobs: self.jobs.map_or(0, |jobs| jobs as usize),
        };
        let findings = Findings::of(self.shown, &sources);
        let found = compare(&sources, &destination, &options, &findings);
        findings.finish(found.as_ref().map_or(0, |found| found.bytes));
        conclude(self, &found.map_err(|error| not_started(&error))?)
    }
}

/// Executes `verify --manifest M DST`.
fn against_manifest(args: &VerifyArgs, path: &Path) -> Result<Exit, CommandFailure> {
    let [destination] = args.paths.as_slice() else {
        return Err(CommandFailure::new(Exit::Usage, "--manifest requires a single operand, DST"));
    };
    let is_input = path.as_os_str() == "-";
    if args.attributes && is_input {
        let message = "--attributes cannot be used with a manifest on standard input";
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    let second = TreeAttributes::beside(path);
    let attributes = args.attributes.then(|| read_attributes(&second)).transpose()?;
    let text = if is_input {
        expect_open(0, INPUT)?;
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    let name = shown(path).to_string();
    let text = text.map_err(|error| CommandFailure::of_io("read", &name, &error))?;
    let options = CheckOptions {
        hash: args.hash.map(Hash::from),
        ignore_extra: args.ignore_extra,
        cold: args.cold,
        jobs: args.jobs.map_or(0, |jobs| jobs as usize),
        own: if is_input { Vec::new() } else { vec![path.to_owned(), second] },
    };
    let findings = Findings::of(args.shown, std::slice::from_ref(destination));
    let manifest = Manifest::parse(&text);
    if args.ignore_extra && manifest.lines.is_empty() && manifest.malformed.is_empty() {
        let message = format!("'{name}': the manifest is empty, so nothing was compared");
        return Err(CommandFailure::new(Exit::Failed, message));
    }
    let found = check(&manifest, destination, &options, &findings);
    findings.finish(found.as_ref().map_or(0, |found| found.bytes));
    let mut found = found.map_err(|error| not_started(&error))?;
    if let Some(attributes) = attributes.filter(|_| !found.stopped) {
        let own: Vec<&Path> = options.own.iter().map(PathBuf::as_path).collect();
        let here = TreeAttributes::of(destination, options.jobs, &own, &findings);
        let (here, account) = here.map_err(|error| not_started(&error))?;
        attributes.check(&here, destination, args.ignore_extra, &findings, &mut found);
        found.add(account);
        findings.flush();
    }
    let has_bare = || manifest.lines.iter().any(|(_, stated)| stated.is_bare());
    if found.differ > 0 && !args.shown.quiet && has_bare() {
        note("hint: hashes of 32 digits are read as XXH128; MD5 is not supported");
    }
    conclude(args, &found)
}

/// Reads the attributes file of a manifest.
fn read_attributes(path: &Path) -> Result<TreeAttributes, CommandFailure> {
    let name = shown(path).to_string();
    let text = fs::read(path).map_err(|error| CommandFailure::of_io("read", &name, &error))?;
    TreeAttributes::parse(&text)
        .map_err(|error| CommandFailure::new(Exit::Failed, format!("'{name}': {error}")))
}

fn operands(args: &VerifyArgs) -> Result<(Vec<PathBuf>, PathBuf), CommandFailure> {
    let mut sources = args.paths.clone();
    if let Some(folder) = &args.into {
        return Ok((sources, folder.clone()));
    }
    let destination = sources.pop().filter(|_| !sources.is_empty());
    let missing =
        || CommandFailure::new(Exit::Usage, "missing destination: thalweg verify SRC... DST");
    Ok((sources, destination.ok_or_else(missing)?))
}

fn not_started(error: &Error) -> CommandFailure {
    let exit = if matches!(error, Error::Usage(_)) { Exit::Usage } else { Exit::Failed };
    CommandFailure::new(exit, error.to_string())
}

/// Prints the results, and returns the exit status.
fn conclude(args: &VerifyArgs, found: &Comparison) -> Result<Exit, CommandFailure> {
    if args.shown.json {
        let stopped = found.stopped.then(|| "interrupted".to_owned());
        let error = found.error.as_ref().map(ToString::to_string).or(stopped);
        keep(text::answer(&answer(found, error.as_deref()), AnswerStream::Output));
    } else if !args.shown.quiet {
        keep(print(&line(found)));
    }
    if found.stopped {
        return Err(CommandFailure::new(Exit::Failed, "interrupted; some files were not compared"));
    }
    Ok(if found.is_same() { Exit::Done } else { Exit::Differ })
}

/// Returns text such as `1 file differs, 2 missing, 3 files equal (1.2 GiB) in 0.6 s, 2.0 GiB/s`.
fn line(found: &Comparison) -> String {
    let took = Duration::try_from_secs_f64(found.seconds).unwrap_or_default();
    let mut parts = Vec::new();
    for (number, one, many) in [
        (found.differ, "entry differs", "entries differ"),
        (found.attributes, "entry with different attributes", "entries with different attributes"),
        (found.missing, "missing", "missing"),
        (found.extra, "extra", "extra"),
        (found.error_count, "not compared because of an error", "not compared because of errors"),
    ] {
        if number > 0 {
            parts.push(count(number, one, many));
        }
    }
    let equal = count(found.same, "file equal", "files equal");
    let bytes = quantity::bytes(found.bytes);
    parts.push(format!("{equal} ({bytes}){}", time_and_rate(found.bytes, took)));
    for (number, one, many) in [
        (found.others, "link or special file equal", "links and special files equal"),
        (found.not_named, "link or special file not listed", "links and special files not listed"),
    ] {
        if number > 0 {
            parts.push(count(number, one, many));
        }
    }
    parts.join(", ") + "\n"
}

/// Returns the JSON object.
fn answer(found: &Comparison, error: Option<&str>) -> String {
    let answer = json!({
        "same": found.same, "bytes": found.bytes, "folders": found.dirs, "others": found.others,
        "differ": found.differ, "attributes": found.attributes, "missing": found.missing,
        "extra": found.extra, "not_named": found.not_named, "errors": found.error_count,
        "error": error,
        "seconds": found.seconds, "cpu_seconds": found.cpu_seconds, "schema": SCHEMA,
    });
    answer.to_string()
}
