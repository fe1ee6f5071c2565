//! `thalweg pipe`: standard input to standard output, and to files.

use rustix::{
    fs::{CWD, Mode, OFlags, ftruncate, openat},
    io::Errno,
};
use std::fmt::Write;
use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};
use thalweg_core::{
    Driver, End, Error, Facts, Plan, Report, Side, Sink, Source, Transfer,
    fan::{Branch, Delivered, Fan},
};
use thalweg_sys::signal;

use crate::{
    args::PipeArgs,
    exit::{Exit, Failure, transfer_error},
    output::{
        answer::{Answer, Unavailable, unavailable},
        text::note,
        units,
    },
    profile::Saved,
    progress::Meter,
    stdio,
};

const INPUT: &str = "standard input";
const OUTPUT: &str = "standard output";

/// Moves the stream.
pub fn run(args: &PipeArgs) -> Result<Exit, Failure> {
    let source = stdio::input().map_err(|e| Failure::of_call("fstat", INPUT, e))?;
    let sink = stdio::output().map_err(|e| Failure::of_call("fstat", OUTPUT, e))?;
    if stdio::feeds_itself(&source, &sink) {
        let message = "standard input and standard output are the same file; it would never end";
        return Err(Failure::new(Exit::Usage, message));
    }
    // It fails for no signal that exists.
    let _ = signal::catch_interrupts();
    stdio::enlarge(&source);
    stdio::enlarge(&sink);
    let expected = args.size.map(|size| size.0).or_else(|| stdio::left_in(&source));
    let job = Job { args, source, sink, expected };
    let end = if args.tee.is_empty() { job.one_sink()? } else { job.several_sinks()? };
    job.finish(end)
}

struct Job<'j> {
    args: &'j PipeArgs,
    source: End<'static>,
    sink: End<'static>,
    expected: Option<u64>,
}

/// How a stream ended.
struct Finished {
    report: Report,
    stopped: bool,
    // The reader of standard output has left.
    deserted: bool,
    unavailable: Vec<Unavailable>,
    problems: Vec<String>,
}

impl Job<'_> {
    fn meter(&self) -> Meter {
        Meter::new(self.args.shown, self.args.name.as_deref(), self.expected)
    }

    fn limit(&self) -> Option<u64> {
        self.args.limit.map(|limit| limit.0).filter(|limit| *limit > 0)
    }

    fn one_sink(&self) -> Result<Finished, Failure> {
        let choice = &self.args.choice;
        let mut transfer = Transfer {
            source: Source::Fd(self.source),
            sink: Sink::Fd(self.sink),
            len: None,
            needs: choice.needs(),
        };
        let facts = Facts { len: self.expected, ..Facts::of(&transfer) };
        let saved = Saved::use_if_current(!choice.no_profile);
        let plan = Plan::make(&facts, &choice.request(), saved.current.as_ref());
        if let Some(reason) = &plan.impossible {
            return Err(Failure::new(Exit::Unsupported, reason.clone()));
        }
        let mut meter = self.meter();
        let driver = Driver { limit: self.limit() };
        let outcome = driver.run(&mut transfer, &plan, &mut meter);
        meter.finish(outcome.report.bytes, true);
        let problem = outcome.error.map(|error| transfer_error(&error, INPUT, OUTPUT));
        Ok(Finished {
            report: outcome.report,
            stopped: outcome.stopped,
            deserted: outcome.error.is_some_and(|error| is_deserted(&error)),
            unavailable: unavailable(&plan),
            problems: problem.into_iter().collect(),
        })
    }

    fn several_sinks(&self) -> Result<Finished, Failure> {
        let names = self.args.tee.iter().map(|path| path.display().to_string());
        let names: Vec<String> = std::iter::once(OUTPUT.to_owned()).chain(names).collect();
        let mut problems = Vec::new();
        let mut files = Vec::new();
        for path in &self.args.tee {
            match self.open(path) {
                Ok(file) => files.push(Some(file)),
                Err(failure) if failure.exit == Exit::Usage => return Err(failure),
                Err(failure) => {
                    problems.push(failure.message);
                    files.push(None);
                }
            }
        }
        // Which name each branch has: files that could not be opened have no branch.
        let mut branches = vec![Branch { end: self.sink, vital: true }];
        let mut named = vec![0];
        for (n, file) in files.iter().enumerate() {
            let Some(file) = file else { continue };
            let end = End::of(file.as_fd());
            let end = end.map_err(|e| Failure::of_call("fstat", &names[n + 1], e))?;
            stdio::enlarge(&end);
            branches.push(Branch { end, vital: false });
            named.push(n + 1);
        }
        let fan = Fan { limit: self.limit(), share_pages: self.args.choice.zero_copy };
        let mut meter = self.meter();
        let outcome = fan.run(self.source, &branches, &mut meter);
        meter.finish(outcome.report.bytes, true);
        let name_of = |n: usize| names[named[n]].as_str();
        problems.extend(outcome.error.map(|error| transfer_error(&error, INPUT, "")));
        let failed = outcome.sinks.iter().enumerate();
        problems.extend(failed.filter_map(|(n, sink)| problem_of(name_of(n), sink)));
        let vital = outcome.sinks.first().and_then(|sink| sink.error);
        Ok(Finished {
            report: outcome.report,
            stopped: outcome.stopped,
            deserted: vital.is_some_and(|error| is_deserted(&error)),
            unavailable: Vec::new(),
            problems,
        })
    }

    /// Opens a file of `--tee`. It is emptied only once it is known not to be an end of this pipe.
    fn open(&self, path: &Path) -> Result<OwnedFd, Failure> {
        let name = path.display().to_string();
        let append = if self.args.append { OFlags::APPEND } else { OFlags::empty() };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | append;
        let mode = Mode::from_raw_mode(0o666);
        let file = openat(CWD, path, flags, mode);
        let file = file.map_err(|e| Failure::of_call("open", &name, e))?;
        let end = End::of(file.as_fd()).map_err(|e| Failure::of_call("fstat", &name, e))?;
        for (other, its_name) in [(&self.source, INPUT), (&self.sink, OUTPUT)] {
            if stdio::same_file(&end, other) {
                let message = format!("--tee {name} is {its_name} itself");
                return Err(Failure::new(Exit::Usage, message));
            }
        }
        if !self.args.append {
            match ftruncate(&file, 0) {
                // FIFOs and devices have nothing to cut off.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(Failure::of_call("ftruncate", &name, errno)),
            }
        }
        Ok(file)
    }

    /// Says how it ended.
    fn finish(&self, end: Finished) -> Result<Exit, Failure> {
        let Finished { report, mut problems, .. } = end;
        if report.lost > 0 && !stdio::put_back(&self.source, report.lost) && !end.deserted {
            problems.push(format!(
                "{} were taken from {INPUT} and did not reach every destination",
                units::exact(report.lost)
            ));
        }
        let interrupted = signal::which().filter(|_| end.stopped);
        if self.args.verbose && !self.args.shown.quiet {
            note(&summary(&report));
        }
        if self.args.shown.json {
            let stopped = interrupted.map(|_| "interrupted".to_owned());
            let error = if problems.is_empty() { stopped } else { Some(problems.join("; ")) };
            let answer = Answer { unavailable: end.unavailable, error, ..Answer::of(&report) };
            note(&answer.line());
        }
        if end.deserted {
            die_of_sigpipe();
        }
        let exit = interrupted.map_or(Exit::Partial, Exit::Signal);
        if problems.is_empty() {
            Ok(interrupted.map_or(Exit::Done, Exit::Signal))
        } else {
            Err(Failure::new(exit, problems.join("\nthalweg: ")))
        }
    }
}

/// As the shell expects of a tool whose reader has had enough: without a word.
fn die_of_sigpipe() {
    use rustix::process::{Signal, getpid, kill_process};
    // Neither fails for ourselves and a signal that exists.
    let _ = signal::reset_sigpipe();
    let _ = kill_process(getpid(), Signal::PIPE);
}

/// What a sink stopped at. Standard output's reader may leave without a word.
fn problem_of(name: &str, sink: &Delivered) -> Option<String> {
    sink.error.map(|error| transfer_error(&error, INPUT, name))
}

fn is_deserted(error: &Error) -> bool {
    error.errno == Errno::PIPE && error.side != Side::Source
}

fn summary(report: &Report) -> String {
    let by = report.main().map_or("nothing", |share| share.mechanism);
    let tuning = report.main().map(|share| share.tuning.to_string()).filter(|t| !t.is_empty());
    let tuning = tuning.map_or(String::new(), |tuning| format!(" ({tuning})"));
    let mut text = format!(
        "{} in {}, {}, by {by}{tuning}, {} of processor time",
        units::exact(report.bytes),
        units::duration(report.wall),
        units::rate(report.bytes, report.wall),
        units::duration(report.cpu),
    );
    for step in &report.steps_down {
        let _ = write!(
            text,
            "\n  from {} to {} at byte {}: {}: {}",
            step.from, step.to, step.at, step.call, step.reason
        );
    }
    text
}
