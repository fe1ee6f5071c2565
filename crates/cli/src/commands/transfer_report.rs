//! What `send` and `receive` share: the place to meet, the errors, the account at the end.

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
    exit::{Exit, Failure, named},
    interrupt,
    output::{
        answer::{Answer, Choice, SCHEMA, Unavailable, Verified},
        quantity,
        text::{answer_beside, complain, note, print},
    },
};

/// The address a person named.
pub fn address(name: &str) -> Result<Address, Failure> {
    Address::parse(name).map_err(|error| match error {
        Error::NotPermitted { why } => Failure::new(Exit::Usage, why),
        other => failure(&other, name),
    })
}

/// What went wrong between the two before anything was moved.
pub fn failure(error: &Error, name: &str) -> Failure {
    failure_after(error, name, &quantity::exact(0))
}

/// What went wrong between the two, and how far they were, in words.
fn failure_after(error: &Error, name: &str, how_far: &str) -> Failure {
    let name = &named(name);
    if interrupt::is_interrupted() {
        return Failure::new(Exit::Failed, format!("{name}: interrupted after {how_far}"));
    }
    match error {
        Error::PeerDied { .. } | Error::Closed { .. } => Failure::new(
            Exit::Failed,
            format!("{name}: the other side is gone after {how_far}; start both again"),
        ),
        Error::NotPermitted { why } => {
            Failure::new(Exit::Unsupported, format!("{name}: {}", shown(why)))
        }
        Error::Meeting { call, errno, .. } => Failure::new(
            Exit::Failed,
            format!("{}{}", Failed { what: name, call, errno: *errno, moved: 0 }, error.advice()),
        ),
        other => Failure::new(Exit::Failed, format!("{name}: {other} (after {how_far})")),
    }
}

/// Time and processor time since the start.
pub struct Clock {
    began: Instant,
    usage: Usage,
}

impl Clock {
    pub fn start() -> Self {
        Self { began: Instant::now(), usage: Usage::now_process() }
    }

    /// So far: on the clock, and of the processor.
    pub fn read(&self) -> (Duration, Duration) {
        (self.began.elapsed(), Usage::now_process().since(&self.usage).cpu())
    }
}

/// How far a transfer was when it ended too early, and what had been announced.
#[derive(Debug, Default)]
pub struct SoFar {
    /// Files that are whole at the other side, as far as this one knows.
    pub files: u64,
    pub bytes: u64,
    /// Files that were announced.
    pub total: Option<u64>,
    /// Bytes that were announced of a file that comes alone.
    pub size: Option<u64>,
    /// Bytes of the files that are whole.
    pub whole: u64,
    /// What of these was moved from open files.
    pub from_open: FromOpen,
}

impl SoFar {
    fn words(&self) -> String {
        let bytes = quantity::exact(self.bytes);
        match (self.total, self.size) {
            (Some(1), Some(size)) => format!("{bytes} of {} announced", quantity::exact(size)),
            (Some(total), _) if total > 1 => {
                format!("{bytes}, with {} of {total} announced files there", self.files)
            }
            _ => bytes,
        }
    }
}

/// What was handed over, and what was not.
pub struct Counts {
    /// Files that are whole at the other side.
    pub files: u64,
    pub bytes: u64,
    /// What of them the receiver moved from open files.
    pub from_open: FromOpen,
    /// Bytes of the files that are whole.
    whole: u64,
    /// What went wrong, in the order it did.
    failures: Vec<Failure>,
    /// The last of them ended all.
    ended: bool,
}

impl Counts {
    /// Of the library's answer; `name` is where the two met, `missing` what did not come so far.
    pub fn of(
        handed: Result<Handed, Error>,
        so_far: &SoFar,
        name: &str,
        missing: Vec<Failure>,
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

    /// Files that were there to be handed over, as far as this side knows.
    pub fn seen(&self) -> usize {
        self.files as usize + self.failures.len()
    }

    /// What comparing the checksums showed: the receiver compares those of all files that came as bytes.
    pub fn verified(&self) -> Verified {
        let differ = self.failures.iter().filter(|failure| failure.exit == Exit::Differ).count();
        let moved = &self.from_open;
        if moved.files > 0 && moved.files == self.files && differ == 0 {
            return Verified::default();
        }
        Verified {
            asked: true,
            same: self.files.saturating_sub(moved.files),
            differ: differ as u64,
            bytes: self.whole.saturating_sub(moved.bytes),
            hash: Some("xxh3"),
            ..Verified::default()
        }
    }

    /// Something went wrong with all of it, and is to be said last.
    pub fn end(&mut self, failure: Failure) {
        self.failures.push(failure);
        self.ended = true;
    }

    /// How the command ends, of so many files in all. What went wrong is said, but for the last
    /// words.
    pub fn exit(mut self, of: usize) -> Result<Exit, Failure> {
        let failed = self.failures.len();
        let differ = self.failures.iter().any(|failure| failure.exit == Exit::Differ);
        let last = if of == 1 || self.ended { self.failures.pop() } else { None };
        for failure in &self.failures {
            complain(&failure.message);
        }
        match (last, failed) {
            (Some(last), _) => Err(last),
            (None, 0) => Ok(Exit::Done),
            (None, _) => {
                let exit = if differ { Exit::Differ } else { Exit::Failed };
                Err(Failure::new(exit, format!("{failed} of {of} files were not handed over")))
            }
        }
    }
}

/// One file's problem, in the words of the side that met it.
fn of_problem(file: &OsStr, problem: &Problem, name: &str) -> Failure {
    let file = named(&if file.is_empty() { name.into() } else { shown(file).to_string() });
    let exit = match problem {
        Problem::Differs { .. } => Exit::Differ,
        _ => Exit::Failed,
    };
    let nothing = if exit == Exit::Differ { "; nothing was published" } else { "" };
    Failure::new(exit, format!("{file}: {problem}{nothing}"))
}

/// What moved most of it.
pub struct Way {
    pub name: String,
    pub tuning: Tuning,
    /// The two sides agreed on it; otherwise the receiver chose it for itself.
    pub is_between_processes: bool,
}

impl Way {
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

/// One side's account.
pub struct Account<'a> {
    /// `sent`, `received`.
    pub did: &'static str,
    pub shown: ProgressArgs,
    pub verbose: bool,
    /// Standard output carries the data.
    pub on_stderr: bool,
    pub way: Way,
    /// What the movers of open files have to say.
    pub notes: &'a [String],
    /// What its choice rests on; the receiver does not choose.
    pub choice: Option<Choice>,
    /// What was passed over.
    pub skipped: &'a [Skipped],
    /// What was moved and what was not.
    pub counts: &'a Counts,
    /// What comparing the checksums showed.
    pub verified: Verified,
    /// Time and processor time.
    pub took: (Duration, Duration),
}

impl Account<'_> {
    /// Prints the line at the end, on standard error, or the JSON object.
    pub fn tell(&self) -> Result<(), Failure> {
        let counts = self.counts;
        let said = self.verbose || counts.files > 0;
        if said && !self.shown.quiet && (self.verbose || !self.shown.json) {
            note(&self.words());
        }
        if !self.shown.json {
            return Ok(());
        }
        let unavailable = self.skipped.iter().map(|skipped| Unavailable {
            name: skipped.mechanism.clone(),
            reason: skipped.reason.clone(),
        });
        let answer = Answer {
            bytes: counts.bytes,
            files: counts.files,
            seconds: self.took.0.as_secs_f64(),
            cpu_seconds: self.took.1.as_secs_f64(),
            mechanism: Some(shown(&self.way.name).to_string()),
            tuning: self.way.tuning.clone(),
            choice: self.choice.clone(),
            verified: self.verified,
            unavailable: unavailable.collect(),
            error: counts.failures.first().map(|failure| failure.message.clone()),
            schema: SCHEMA,
            ..Answer::default()
        };
        if self.on_stderr {
            answer_beside(&answer.line());
            return Ok(());
        }
        print(&(answer.line() + "\n"))
    }

    /// `sent 3 files, 1.2 GiB in 0.6 s: 2.0 GiB/s by ring`, as of a copy.
    fn words(&self) -> String {
        let (counts, took) = (self.counts, self.took.0);
        // A receiver has the words from the other side.
        let tuning = shown(&self.way.tuning.to_string()).to_string();
        let tuning = if tuning.is_empty() { tuning } else { format!(" ({tuning})") };
        let mut text = format!(
            "{} {}, {} in {}: {} by {}{tuning}",
            self.did,
            quantity::count(counts.files, "file", "files"),
            quantity::bytes(counts.bytes),
            quantity::duration(took),
            quantity::rate(counts.bytes, took),
            shown(&self.way.name),
        );
        let failed = counts.failures.len();
        if failed > 0 {
            let _ = write!(text, "; {failed} with problems");
        }
        if self.verbose {
            let _ = write!(text, "; {} of processor time", quantity::duration(self.took.1));
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

    fn ended(so_far: &SoFar) -> Counts {
        Counts::of(Err(Error::Timeout), so_far, "job", Vec::new())
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
