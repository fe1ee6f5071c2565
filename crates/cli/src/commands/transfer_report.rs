//! Code shared by `send` and `receive`: address, errors, and the report at the end.

use std::{
    ffi::OsStr,
    fmt::Write,
    time::{Duration, Instant},
};
use thalweg_channel::{
    Address, Error,
    bulk::{FromOpen, Handed, Problem, Skipped},
};
use thalweg_core::{Info, Tuning, failed::Failed, shown};
use thalweg_sys::usage::Usage;

use crate::{
    args::ProgressArgs,
    exit::{CommandFailure, Exit, named},
    interrupt,
    output::{
        answer::{ChoiceEvidence, JsonAnswer, SCHEMA, UnavailableMethod, VerifiedCounts},
        quantity,
        summary_words::{count, time_and_rate},
        text::{self, AnswerStream, note, report},
    },
};

/// Parses an address given by the user.
pub fn address(name: &str) -> Result<Address, CommandFailure> {
    Address::parse(name).map_err(|error| match error {
        Error::NotPermitted { why } => CommandFailure::new(Exit::Usage, why),
        other => failure(&other, name),
    })
}

/// Converts an error that occurred before any byte was moved.
pub fn failure(error: &Error, name: &str) -> CommandFailure {
    failure_after(error, name, &quantity::exact(0))
}

/// Converts an error of the connection between the two processes; `how_far` describes the progress.
fn failure_after(error: &Error, name: &str, how_far: &str) -> CommandFailure {
    let name = &named(name);
    if interrupt::is_interrupted() {
        return CommandFailure::new(Exit::Failed, format!("{name}: interrupted after {how_far}"));
    }
    match error {
        Error::PeerDied { .. } | Error::Closed { .. } => CommandFailure::new(
            Exit::Failed,
            format!("{name}: the other process ended after {how_far}"),
        )
        .hint("start both processes again"),
        Error::NotPermitted { why } => {
            CommandFailure::new(Exit::Unsupported, format!("{name}: {}", shown(why)))
        }
        // The name of a channel is not the path of the directory that cannot be created.
        Error::Meeting { call: call @ "mkdir", path, errno } => {
            let what = &path.display().to_string();
            CommandFailure::new(
                Exit::Failed,
                format!("{}{}", Failed { what, call, errno: *errno, moved: 0 }, error.advice()),
            )
        }
        Error::Meeting { call, errno, .. } => CommandFailure::new(
            Exit::Failed,
            format!("{}{}", Failed { what: name, call, errno: *errno, moved: 0 }, error.advice()),
        ),
        other => CommandFailure::new(Exit::Failed, format!("{name}: {other} (after {how_far})")),
    }
}

/// Wall time and CPU time since the start.
pub struct TransferClock {
    began: Instant,
    usage: Usage,
}

impl TransferClock {
    pub fn start() -> Self {
        Self { began: Instant::now(), usage: Usage::now_process() }
    }

    /// Returns the elapsed wall time and CPU time.
    pub fn read(&self) -> (Duration, Duration) {
        (self.began.elapsed(), Usage::now_process().since(&self.usage).cpu())
    }
}

/// Progress of a transfer at the time of an error, and the announced totals.
#[derive(Debug, Default)]
pub struct SoFar {
    /// Files that are complete at the receiver, as far as this side knows.
    pub files: u64,
    pub bytes: u64,
    /// Number of announced files.
    pub total: Option<u64>,
    /// Announced size of the current file, in bytes.
    pub size: Option<u64>,
    /// Bytes of the complete files.
    pub whole: u64,
    /// Files and bytes that the receiver copied from open descriptors.
    pub from_open: FromOpen,
}

impl SoFar {
    fn words(&self) -> String {
        let bytes = quantity::exact(self.bytes);
        match (self.total, self.size) {
            (Some(1), Some(size)) => format!("{bytes} of {}", quantity::exact(size)),
            (Some(total), _) if total > 1 => {
                format!("{bytes}, with {} of {total} announced files complete", self.files)
            }
            _ => bytes,
        }
    }
}

/// Counts of transferred and failed files.
pub struct TransferCounts {
    /// Files that are complete at the receiver.
    pub files: u64,
    pub bytes: u64,
    /// Files and bytes that the receiver copied from open descriptors.
    pub from_open: FromOpen,
    /// Bytes of the complete files.
    whole: u64,
    /// Failures, in order of occurrence.
    failures: Vec<CommandFailure>,
    /// `true` if the last failure ended the whole transfer.
    ended: bool,
}

impl TransferCounts {
    /// Converts the result of the library. `name`: the address; `missing`: failures of files that this side could not
    /// open.
    pub fn of(
        handed: Result<Handed, Error>,
        so_far: &SoFar,
        name: &str,
        missing: Vec<CommandFailure>,
    ) -> Self {
        let SoFar { files, bytes, whole, .. } = *so_far;
        let from_open = so_far.from_open.clone();
        let mut counts = Self { files, bytes, from_open, whole, failures: missing, ended: false };
        match handed {
            Ok(handed) => {
                counts.files = handed.files;
                counts.whole = bytes;
                counts.from_open = handed.from_open;
                let problems = handed.problems.into_iter();
                counts.failures.extend(problems.map(|(file, why)| of_problem(&file, &why, name)));
            }
            Err(error) => counts.end(failure_after(&error, name, &so_far.words())),
        }
        counts
    }

    /// Returns the number of files that arrived or failed, as far as this side knows.
    pub fn seen(&self) -> usize {
        self.files as usize + self.failures.len()
    }

    /// Returns the results of comparing checksums. The receiver compares the checksum of each file that arrived as
    /// bytes.
    pub fn verified(&self) -> VerifiedCounts {
        let differ = self.failures.iter().filter(|failure| failure.exit == Exit::Differ).count();
        let moved = &self.from_open;
        if moved.files > 0 && moved.files == self.files && differ == 0 {
            return VerifiedCounts::default();
        }
        VerifiedCounts {
            asked: true,
            same: self.files.saturating_sub(moved.files),
            differ: differ as u64,
            bytes: self.whole.saturating_sub(moved.bytes),
            hash: Some("xxh3"),
            ..VerifiedCounts::default()
        }
    }

    /// Records a failure that ended the whole transfer; it is reported last.
    pub fn end(&mut self, failure: CommandFailure) {
        self.failures.push(failure);
        self.ended = true;
    }

    /// Prints the failures, and returns an error with their number if there are any. The failure of a single file, or
    /// of the whole transfer, is returned instead of printed. `of`: total number of files.
    pub fn exit(mut self, of: usize) -> Result<Exit, CommandFailure> {
        let failed = self.failures.len();
        let differ = self.failures.iter().any(|failure| failure.exit == Exit::Differ);
        let last = if of == 1 || self.ended { self.failures.pop() } else { None };
        for failure in &self.failures {
            report(failure);
        }
        match (last, failed) {
            (Some(last), _) => Err(last),
            (None, 0) => Ok(Exit::Done),
            (None, _) => {
                let exit = if differ { Exit::Differ } else { Exit::Failed };
                Err(CommandFailure::new(exit, format!("{failed} of {of} files failed")))
            }
        }
    }
}

/// Converts the problem of one file, in the words of the side that reported it.
fn of_problem(file: &OsStr, problem: &Problem, name: &str) -> CommandFailure {
    let file = named(&if file.is_empty() { name.into() } else { shown(file).to_string() });
    let exit = match problem {
        Problem::Differs { .. } => Exit::Differ,
        _ => Exit::Failed,
    };
    let discarded = if exit == Exit::Differ { "; the copy was discarded" } else { "" };
    CommandFailure::new(exit, format!("{file}: {problem}{discarded}"))
}

/// The mechanism that moved the most bytes.
pub struct UsedMethod {
    pub name: String,
    pub tuning: Tuning,
    /// `true` if both sides agreed on the mechanism; `false` if the receiver chose it alone.
    pub is_between_processes: bool,
}

impl UsedMethod {
    pub fn of(moved: &FromOpen, bytes: u64, agreed: &Info, tuning: &Tuning) -> Self {
        match &moved.by {
            Some(by) if moved.bytes >= bytes.saturating_sub(moved.bytes) => {
                Self { name: by.clone(), tuning: Tuning::default(), is_between_processes: false }
            }
            _ => Self {
                name: agreed.name.to_owned(),
                tuning: tuning.clone(),
                is_between_processes: true,
            },
        }
    }
}

/// The final report of the sender or of the receiver.
pub struct TransferAccount<'a> {
    /// `sent` or `received`.
    pub did: &'static str,
    pub shown: ProgressArgs,
    pub verbose: bool,
    /// `true` if standard output carries the data.
    pub on_stderr: bool,
    pub way: UsedMethod,
    /// Lines about changes of mechanism during copies from open descriptors.
    pub notes: &'a [String],
    /// The evidence for the sender's choice; `None` at the receiver, and if the receiver chose the mechanism alone.
    pub choice: Option<ChoiceEvidence>,
    /// Mechanisms that were skipped.
    pub skipped: &'a [Skipped],
    pub counts: &'a TransferCounts,
    /// Results of comparing the checksums.
    pub verified: VerifiedCounts,
    /// Wall time and CPU time.
    pub took: (Duration, Duration),
}

impl TransferAccount<'_> {
    /// Prints the final line on standard error, or the JSON object.
    pub fn print(&self) -> Result<(), CommandFailure> {
        let counts = self.counts;
        let is_shown = self.verbose || counts.files > 0;
        if is_shown && !self.shown.quiet && (self.verbose || !self.shown.json) {
            note(&self.words());
        }
        if !self.shown.json {
            return Ok(());
        }
        let unavailable = self.skipped.iter().map(|skipped| UnavailableMethod {
            name: skipped.mechanism.clone(),
            reason: skipped.reason.clone(),
        });
        let answer = JsonAnswer {
            bytes: counts.bytes,
            files: counts.files,
            seconds: self.took.0.as_secs_f64(),
            cpu_seconds: self.took.1.as_secs_f64(),
            mechanism: Some(shown(&self.way.name).to_string()),
            tuning: self.way.tuning.clone(),
            choice: self.choice.clone(),
            verified: self.verified,
            unavailable: unavailable.collect(),
            error: counts.failures.first().map(CommandFailure::one_line),
            schema: SCHEMA,
            ..JsonAnswer::default()
        };
        text::answer(&answer.line(), AnswerStream::beside(self.on_stderr))
    }

    /// Returns text such as `3 files sent (1.2 GiB) in 0.6 s, 2.0 GiB/s by ring`, like the summary of a copy.
    fn words(&self) -> String {
        let (counts, took) = (self.counts, self.took.0);
        // A receiver gets these strings from the peer, so they must be escaped.
        let tuning = shown(&self.way.tuning.to_string()).to_string();
        let tuning = if tuning.is_empty() { tuning } else { format!(" ({tuning})") };
        let mut text = format!(
            "{} {} ({}){} by {}{tuning}",
            count(counts.files, "file", "files"),
            self.did,
            quantity::bytes(counts.bytes),
            time_and_rate(counts.bytes, took),
            shown(&self.way.name),
        );
        let failed = counts.failures.len();
        if failed > 0 {
            let _ = write!(text, ", {}", count(failed as u64, "error", "errors"));
        }
        if self.verbose {
            let _ = write!(text, ", {} CPU time", quantity::duration(self.took.1));
            if let Some(choice) = &self.choice {
                let _ = write!(text, "\n  {}: {}", self.way.name, choice.why);
            }
            for note in self.notes {
                let _ = write!(text, "\n  {note}");
            }
            for skipped in self.skipped {
                let (arm, reason) = (shown(&skipped.mechanism), shown(&skipped.reason));
                let _ = write!(text, "\n  not used: {arm}: {reason}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(so_far: &SoFar) -> TransferCounts {
        TransferCounts::of(Err(Error::Timeout), so_far, "job", Vec::new())
    }

    #[test]
    fn after_an_error_only_what_came_as_bytes_and_is_whole_counts_as_compared() {
        let from_open = FromOpen { files: 2, bytes: 200, by: Some("reflink".to_owned()) };
        let so_far = SoFar { files: 3, bytes: 350, whole: 230, from_open, ..SoFar::default() };
        let counts = ended(&so_far);
        let verified = counts.verified();
        assert_eq!((verified.asked, verified.same, verified.bytes), (true, 1, 30));
        assert_eq!((counts.files, counts.bytes, counts.failures.len()), (3, 350, 1));
    }

    #[test]
    fn after_an_error_among_open_files_nothing_was_compared() {
        let from_open = FromOpen { files: 3, bytes: 230, by: None };
        let so_far = SoFar { files: 3, bytes: 350, whole: 230, from_open, ..SoFar::default() };
        assert!(!ended(&so_far).verified().asked);
    }
}
