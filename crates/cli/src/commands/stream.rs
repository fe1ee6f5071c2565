//! Moves one stream with the driver, for `pipe` and for `copy` to standard output, and handles its end.

use std::fmt::Write;
use thalweg_core::{Driver, End, Error, Facts, Kind, Plan, Report, Side, Sink, Source, Transfer};
use thalweg_sys::{Errno, io, signal};

use crate::{
    args::{MethodArgs, ProgressArgs},
    exit::{CommandFailure, Exit, named, transfer_failure},
    output::{
        answer::{JsonAnswer, UnavailableMethod, describe_look, unavailable},
        quantity,
        text::{self, AnswerStream, keep, note, report as report_failure},
    },
    profile::{Moves, SavedProfile},
    progress::ProgressMeter,
    stdio,
};

/// A stream, and options for moving it.
pub struct StreamCopy<'s> {
    /// Options for choosing the mechanism.
    pub choice: &'s MethodArgs,
    pub shown: ProgressArgs,
    /// Label of the progress line.
    pub label: Option<&'s str>,
    /// Rate limit in bytes per second.
    pub limit: Option<u64>,
    /// `true` to print a summary at the end.
    pub verbose: bool,
    pub source: End<'s>,
    pub source_name: String,
    pub sink: End<'s>,
    pub sink_name: String,
    /// Number of bytes to move; `None` for all.
    pub len: Option<u64>,
    /// Expected number of bytes.
    pub expected: Option<u64>,
    /// `false` for a short file: the driver reads and writes it without a plan, and measures no times.
    pub needs_plan: bool,
}

/// The outcome of a stream.
pub struct Finished {
    pub report: Report,
    pub stopped: bool,
    /// `true` if the reader has closed its end of the sink.
    pub abandoned: bool,
    /// Mechanisms that could not be used.
    pub unavailable: Vec<UnavailableMethod>,
    pub failures: Vec<CommandFailure>,
}

impl StreamCopy<'_> {
    /// Enlarges the source and the sink if they are pipes. Returns an error if the stream would never end, because it
    /// would read the bytes that it writes.
    pub fn prepare(&self) -> Result<(), CommandFailure> {
        if stdio::feeds_itself(&self.source, &self.sink) {
            let message = format!(
                "{} and {} are the same file",
                named(&self.source_name),
                named(&self.sink_name)
            );
            return Err(CommandFailure::new(Exit::Usage, message));
        }
        stdio::enlarge(&self.source, self.expected);
        stdio::enlarge(&self.sink, self.expected);
        Ok(())
    }

    /// Moves all bytes and reports the outcome.
    pub fn run(&self) -> Result<Exit, CommandFailure> {
        self.prepare()?;
        let mut transfer = Transfer {
            source: Source::Fd(self.source),
            sink: Sink::Fd(self.sink),
            len: self.len,
            needs: self.choice.needs(),
        };
        let plan = if self.needs_plan { self.plan(&transfer)? } else { Plan::default() };
        let mut meter = self.meter();
        let driver = Driver { limit: self.limit() };
        let outcome = if self.needs_plan {
            driver.run(&mut transfer, &plan, &mut meter)
        } else {
            driver.run_untimed(&mut transfer, &plan, &mut meter)
        };
        meter.finish(outcome.report.bytes, true);
        let failure =
            outcome.error.map(|error| transfer_failure(&error, &self.source_name, &self.sink_name));
        let failure = failure.or_else(|| close_failure(&self.sink, &self.sink_name));
        self.finish(Finished {
            report: outcome.report,
            stopped: outcome.stopped,
            abandoned: outcome.error.is_some_and(|error| is_abandoned(&error)),
            unavailable: unavailable(&plan),
            failures: failure.into_iter().collect(),
        })
    }

    fn plan(&self, transfer: &Transfer<'_>) -> Result<Plan, CommandFailure> {
        let facts = Facts { len: self.expected, ..Facts::of(transfer) };
        let saved = SavedProfile::use_if_current(!self.choice.no_profile, Moves::Streams);
        let plan = Plan::make(&facts, &self.choice.request(), saved.current.as_ref());
        match &plan.impossible {
            Some(reason) => Err(CommandFailure::new(Exit::Unsupported, reason.clone())),
            None => Ok(plan),
        }
    }

    pub fn meter(&self) -> ProgressMeter {
        let mut meter = ProgressMeter::new(self.shown, self.label, self.expected);
        meter.listen();
        meter
    }

    /// Returns the rate limit in bytes per second.
    pub fn limit(&self) -> Option<u64> {
        self.limit.filter(|limit| *limit > 0)
    }

    pub fn finish(&self, end: Finished) -> Result<Exit, CommandFailure> {
        let Finished { mut report, mut failures, .. } = end;
        if end.abandoned {
            // EPIPE means that the reader has closed the pipe. It is not a failure of the mechanism.
            report.steps_down.retain(|step| step.errno != "EPIPE");
        }
        if report.lost > 0 && !stdio::put_back(&self.source, report.lost) && !end.abandoned {
            let lost = quantity::exact(report.lost);
            let message = format!("{lost} read from {} were lost", self.source_name);
            failures.push(CommandFailure::new(Exit::Failed, message));
        }
        if self.verbose && !self.shown.quiet {
            note(&summary(&report));
        }
        if self.shown.json {
            let stopped = end.stopped.then(|| "interrupted".to_owned());
            let errors: Vec<String> = failures.iter().map(CommandFailure::one_line).collect();
            let error = if errors.is_empty() { stopped } else { Some(errors.join("; ")) };
            let answer =
                JsonAnswer { unavailable: end.unavailable, error, ..JsonAnswer::of(&report) };
            keep(text::answer(&answer.line(), AnswerStream::Errors));
        }
        if end.abandoned {
            die_of_sigpipe();
        }
        if let Some(last) = failures.pop() {
            for failure in &failures {
                report_failure(failure);
            }
            return Err(last);
        }
        Ok(if end.stopped { Exit::Failed } else { Exit::Done })
    }
}

/// Returns the error that close(2) would report for the sink. Network file systems may report write errors only at
/// close. Pipes, sockets and `/dev/null` report none.
pub fn close_failure(sink: &End<'_>, name: &str) -> Option<CommandFailure> {
    if matches!(sink.kind, Kind::Pipe | Kind::Socket | Kind::Null) {
        return None;
    }
    let errno = io::flush(sink.fd).err()?;
    Some(CommandFailure::of_call("close", name, errno))
}

/// Ends the process with SIGPIPE and without a message. Shells expect this from a tool if its reader has closed the
/// pipe.
fn die_of_sigpipe() {
    use rustix::process::{Signal, getpid, kill_process};
    // These calls cannot fail for the own process and a valid signal.
    let _ = signal::reset_sigpipe();
    let _ = kill_process(getpid(), Signal::PIPE);
}

/// Returns `true` if the reader has closed its end of the sink.
pub fn is_abandoned(error: &Error) -> bool {
    error.errno == Errno::PIPE && error.side != Side::Source
}

fn summary(report: &Report) -> String {
    let by = report.main().map_or("nothing", |share| share.mechanism);
    let tuning = report.main().map(|share| share.tuning.to_string()).filter(|t| !t.is_empty());
    let tuning = tuning.map_or(String::new(), |tuning| format!(" ({tuning})"));
    let mut text = format!(
        "{} in {}, {}, by {by}{tuning}, {} CPU time",
        quantity::exact(report.bytes),
        quantity::duration(report.wall),
        quantity::rate(report.bytes, report.wall),
        quantity::duration(report.cpu),
    );
    for event in events(report) {
        let _ = write!(text, "\n  {event}");
    }
    text
}

/// Formats every change of mechanism, and every comparison of mechanisms.
pub fn events(report: &Report) -> impl Iterator<Item = String> {
    let steps = report.steps_down.iter().map(|step| {
        format!(
            "fell back from {} to {} at byte {}: {}: {}",
            step.from, step.to, step.at, step.call, step.reason
        )
    });
    steps.chain(report.looks.iter().map(describe_look))
}
