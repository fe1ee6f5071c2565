//! `thalweg manifest`: writes the hash and the name of every file.

use clap::Args;
use serde_json::json;
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_core::failed::quoted;
use thalweg_tree::{
    Error,
    compare::Comparison,
    manifest::{NewManifest, TreeAttributes, make},
};

use super::{Subcommand, verify::Findings};
use crate::{
    args::{HashName, ProgressArgs},
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::SCHEMA,
        quantity,
        summary_words::{count, time_and_rate},
        text::{self, AnswerStream, note, print, print_bytes},
    },
    stdio,
};

/// Write the hash and the name of every file
///
/// Writes one line for each file below DIR, sorted by name, in the format of sha256sum, b3sum and xxhsum -H2. To check
/// the list, run one of these programs in DIR with the option -c. Symbolic links and special files are not listed, only
/// counted.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManifestArgs {
    /// Directory whose files are listed, or a file
    #[arg(value_name = "DIR")]
    pub path: PathBuf,

    /// Hash function
    #[arg(long, value_name = "HASH", value_enum, default_value_t = HashName::Blake3)]
    pub hash: HashName,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write the attributes of all entries, to FILE.attributes
    ///
    /// These are mode, owner, modification time, extended attributes and hard links.
    #[arg(long, requires = "output")]
    pub attributes: bool,
    /// Use this many threads [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg manifest -o photos.b3 photos
  (cd photos && b3sum -c ../photos.b3)
  thalweg verify --manifest photos.b3 /backup/photos
  thalweg manifest --attributes -o photos.b3 photos
  thalweg verify --manifest photos.b3 --attributes /backup/photos
  thalweg manifest --hash sha256 . | diff - yesterday.sums

Exit status:
  0    success
  1    a file is unreadable; with -o no manifest was written
  2    wrong usage
  128  plus the number of the signal that interrupted the command";

const NOT_WRITTEN: &str = "no manifest was written";

impl Subcommand for ManifestArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then(|| AnswerStream::beside(self.own_file().is_none()))
    }

    fn failed_answer(&self, error: &str) -> String {
        answer(&Comparison::default(), Some(error))
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        interrupt::catch();
        let findings = Findings::of(self.shown, std::slice::from_ref(&self.path));
        let jobs = self.jobs.map_or(0, |jobs| jobs as usize);
        let own = self.own_file();
        let second = own.filter(|_| self.attributes).map(TreeAttributes::beside);
        if self.attributes && second.is_none() {
            let message = "--attributes requires -o FILE";
            return Err(CommandFailure::new(Exit::Usage, message));
        }
        let files: Vec<&Path> = own.into_iter().chain(second.as_deref()).collect();
        let failed = |error: Error| CommandFailure::new(Exit::Failed, error.to_string());
        if let Some(file) = files.iter().find(|file| are_same(file, &self.path)) {
            let message = format!("{}: the manifest would replace the listed file", quoted(file));
            return Err(CommandFailure::new(Exit::Usage, message));
        }
        let made = make(&self.path, self.hash.into(), jobs, &files, &findings);
        findings.finish(made.as_ref().map_or(0, |made| made.account.bytes));
        let made = made.map_err(failed)?;
        let account = &made.account;
        if let (Some(path), false) = (&second, account.stopped || account.error_count > 0) {
            let (attributes, account) =
                TreeAttributes::of(&self.path, jobs, &files, &findings).map_err(failed)?;
            publish(path, &NewManifest { text: attributes.text(), account })?;
        }
        match own {
            Some(path) => {
                publish(path, &made)?;
            }
            None if account.stopped => return Err(interrupt::failure(NOT_WRITTEN)),
            None => print_bytes(&made.text)?,
        }
        print_totals(self, &made, own.is_some())?;
        Ok(if account.error_count == 0 { Exit::Done } else { Exit::Failed })
    }
}

impl ManifestArgs {
    /// Returns the file of the manifest; `None` if it is standard output.
    fn own_file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }
}

/// Returns `true` if both paths lead to one regular file.
fn are_same(one: &Path, other: &Path) -> bool {
    let id =
        |path: &Path| fs::metadata(path).ok().filter(Metadata::is_file).map(|m| (m.dev(), m.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Writes a manifest to a file, if it is complete.
pub fn publish(path: &Path, made: &NewManifest) -> Result<Exit, CommandFailure> {
    if made.account.stopped {
        return Err(interrupt::failure(NOT_WRITTEN));
    }
    if made.account.error_count > 0 {
        let errors = count(made.account.error_count, "error", "errors");
        let message = format!("no manifest was written because of {errors}");
        return Err(CommandFailure::new(Exit::Failed, message));
    }
    let failed = |error| CommandFailure::of_destination(error, path);
    let mut destination = stdio::destination(path)?;
    destination.write(&made.text, &interrupt::check).map_err(|error| failed(error.into()))?;
    destination.publish().map_err(failed)?;
    Ok(Exit::Done)
}

/// Returns the JSON object.
fn answer(account: &Comparison, error: Option<&str>) -> String {
    let answer = json!({
        "files": account.same, "bytes": account.bytes, "folders": account.dirs,
        "not_named": account.not_named, "errors": account.error_count, "error": error,
        "seconds": account.seconds, "cpu_seconds": account.cpu_seconds, "schema": SCHEMA,
    });
    answer.to_string()
}

/// Prints the totals: on standard error if the lines are on standard output.
fn print_totals(
    args: &ManifestArgs,
    made: &NewManifest,
    is_in_file: bool,
) -> Result<(), CommandFailure> {
    let account = &made.account;
    if args.shown.json {
        let error = account.error.as_ref().map(ToString::to_string);
        let stream = AnswerStream::beside(!is_in_file);
        return text::answer(&answer(account, error.as_deref()), stream);
    }
    let unnamed = account.not_named;
    if args.shown.quiet || !is_in_file && unnamed == 0 {
        return Ok(());
    }
    let took = Duration::try_from_secs_f64(account.seconds).unwrap_or_default();
    let unlisted = if unnamed == 0 {
        String::new()
    } else {
        let what = count(unnamed, "link or special file", "links and special files");
        format!(", {what} not listed")
    };
    let line = format!(
        "{} ({}){}{unlisted}",
        count(account.same, "file hashed", "files hashed"),
        quantity::bytes(account.bytes),
        time_and_rate(account.bytes, took)
    );
    if is_in_file {
        return print(&(line + "\n"));
    }
    note(&line);
    Ok(())
}
