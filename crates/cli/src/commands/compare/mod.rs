//! `thalweg compare`: any commands, judged as the lab judges its arms. Arguments, and what is run; nothing
//! is measured or decided here.

mod contenders;
mod printed;

use clap::Args;
use serde::Serialize;
use std::{ffi::OsString, fs, path::PathBuf, time::Duration};
use thalweg_core::quantity::parse_duration;
use thalweg_lab::{
    measure::stats::Random,
    probes::compare::{self, Busy, Compare, CompareError, Found, Rounds},
};
use thalweg_sys::signal;

use crate::{
    args::{MetricArgs, flag},
    exit::{Exit, Failure},
    interrupt,
    output::{
        answer::SCHEMA,
        runs::Runs,
        text::{complain, note, print, print_json},
    },
};
use contenders::Scan;

/// Compares any commands: which one is faster, by how much, or that no difference shows
///
/// The commands take turns in random order, one of them twice in each round, so that a drift of the
/// machine is not taken for a difference between them. Each is compared with the first. Their standard
/// input is empty, and their output is not shown.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The commands with `--` between them; or each as one word in quotes, split as a shell would
    #[arg(last = true, required = true, value_name = "CMD")]
    commands: Vec<OsString>,

    #[command(flatten)]
    metric: MetricArgs,
    /// Rounds; each runs every command once, and one of them twice [default: at least 20, and more
    /// until --min-time is reached]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "min_time")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100_000))]
    runs: Option<u32>,
    /// How long each command runs in all, at least
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    min_time: Duration,
    /// Runs of each command before any counts
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// Run this before each run, outside the timed part
    #[arg(short, long, value_name = "CMD")]
    prepare: Option<String>,
    /// Run this after each run, outside the timed part: it must succeed, as `cmp A B` does
    #[arg(short, long, value_name = "CMD")]
    check: Option<String>,
    /// Compare what the commands print, byte by byte
    #[arg(long)]
    same_output: bool,
    /// Run everything once for each of these values, put in place of {NAME}; may be given several times
    #[arg(short, long, value_name = "NAME=A,B,...", value_parser = Scan::parse)]
    scan: Vec<Scan>,
    /// What a command is called in the answer; given once for each, in their order
    #[arg(short = 'N', long, value_name = "NAME")]
    name: Vec<String>,
    /// Give each command to a shell, which is part of what is measured
    #[arg(long, value_name = "SHELL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "sh")]
    shell: Option<String>,
    /// Take a status other than 0 for no failure
    #[arg(short, long)]
    ignore_failure: bool,
    /// End with 1 if a command is shown to be slower than the first; with a share, if the whole interval
    /// lies beyond it
    #[arg(long, value_name = "slower[=5%]", value_parser = FailIf::parse)]
    fail_if: Option<FailIf>,
    /// How long one run may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
    /// Repeats the order of the runs of an earlier comparison
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long, env = "THALWEG_JSON", hide_env = true, value_parser = flag())]
    json: bool,
    /// Print a table for a pull request
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Also write csv (every run), json or markdown into a file, or print it without one
    #[arg(long, value_name = "FORMAT[=FILE]", value_parser = Export::parse)]
    export: Vec<Export>,
}

const EXAMPLES: &str = "\
Examples:
  thalweg compare -- cp big.iso copy -- thalweg copy big.iso copy
  thalweg compare --prepare 'rm -rf copy' -- 'cp -r tree copy' 'thalweg copy -r tree copy'
  thalweg compare --scan n=1,2,4,8 -- 'xz -kfT{n} dump.sql'
  thalweg compare --metric 'regex:([0-9.]+) MB/s' -- ./bench old -- ./bench new
  thalweg compare --shell --same-output --fail-if slower=5% -- './old < in' './new < in'

A difference is shown if the whole 95 % interval of the ratio says so, by more than two runs of one
command differ. Else the answer is `no difference shown`, which does not say that they are equal.

Exit status: 0 done; 1 --fail-if holds; 2 usage; 3 a command failed, printed something else, or gave no
number, and nothing is said of it.

Words that are new to you (arm, round, noise): docs/glossary.md.";

/// When the comparison is a failure.
#[derive(Clone, Copy, Debug)]
struct FailIf {
    /// By so large a share more.
    by: f64,
}

impl FailIf {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is neither slower nor slower=5%");
        if text == "slower" {
            return Ok(Self { by: 0.0 });
        }
        let share = text.strip_prefix("slower=").ok_or_else(wrong)?;
        let percent = share.strip_suffix('%').unwrap_or(share).trim();
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        if !(0.0..=1e6).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self { by: percent / 100.0 })
    }
}

/// The forms of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Markdown,
    Csv,
}

/// A form, and the file that it goes into.
#[derive(Clone, Debug)]
struct Export {
    form: Form,
    file: Option<PathBuf>,
}

impl Export {
    fn parse(text: &str) -> Result<Self, String> {
        let (form, file) = match text.split_once('=') {
            Some((form, file)) => (form, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let form = match form {
            "csv" => Form::Csv,
            "json" => Form::Json,
            "markdown" => Form::Markdown,
            _ => return Err(format!("'{form}' is none of csv, json and markdown")),
        };
        if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
            return Err("the name of the file is empty".to_owned());
        }
        Ok(Self { form, file })
    }
}

/// Compares, and prints what was found.
pub fn run(args: &CompareArgs, color: bool) -> Result<Exit, Failure> {
    let contenders = contenders::read(args)?;
    // Not as other commands do: that blocks signals in this thread, and a program started with SIGTERM
    // blocked could not be asked to end. It fails for no signal that exists.
    let _ = signal::catch_interrupts();
    let metric = args.metric.get();
    let runs = Runs::new(!args.json);
    let found = compare::run(&Compare {
        contenders: &contenders,
        metric: &metric,
        rounds: args.runs.map_or(Rounds::AtLeast(args.min_time), |n| Rounds::Fixed(n as usize)),
        warm_ups: args.warmup as usize,
        same_output: args.same_output,
        must_succeed: !args.ignore_failure,
        limit: Some(args.timeout),
        seed: args.seed.unwrap_or_else(Random::any_seed),
        stop: &interrupt::check,
        watch: &|done, all| runs.show(done, all),
    });
    runs.finish();
    let found = found.map_err(|error| failure(&error))?;
    if let Some(busy) = found.busy.filter(Busy::is_much) {
        note(&format!(
            "thalweg: {:.1} of {} processors were busy with other work before: the interval shows it",
            busy.processors, busy.of
        ));
    }
    let printed = printed::Printed { found: &found, metric: &metric, color };
    for export in &args.export {
        write(export, &printed)?;
    }
    let shown = match (args.json, args.markdown) {
        (true, _) => Some(Form::Json),
        (_, true) => Some(Form::Markdown),
        // What is exported to standard output takes the place of the table.
        _ => args.export.iter().all(|export| export.file.is_some()).then_some(Form::Text),
    };
    if let Some(form) = shown {
        write(&Export { form, file: None }, &printed)?;
    }
    Ok(verdict(args, &found))
}

fn verdict(args: &CompareArgs, found: &Found) -> Exit {
    for row in &found.rows {
        if let Some(why) = &row.failed {
            complain(why);
        }
    }
    if found.rows.iter().any(|row| row.failed.is_some()) {
        return Exit::Incomplete;
    }
    let Some(FailIf { by }) = args.fail_if else { return Exit::Done };
    let slower: Vec<&str> = found.slower_by(by).map(|row| row.name.as_str()).collect();
    if slower.is_empty() {
        return Exit::Done;
    }
    complain(&format!("--fail-if: slower: {}", slower.join(", ")));
    Exit::Differ
}

#[derive(Serialize)]
struct Answer<'f> {
    #[serde(flatten)]
    found: &'f Found,
    schema: u32,
}

fn write(export: &Export, printed: &printed::Printed<'_>) -> Result<(), Failure> {
    let answer = Answer { found: printed.found, schema: SCHEMA };
    let text = match export.form {
        Form::Text => printed.text(),
        Form::Markdown => printed.markdown(),
        Form::Csv => printed.csv(),
        Form::Json if export.file.is_none() => return print_json(&answer),
        Form::Json => serde_json::to_string_pretty(&answer)
            .map_err(|e| Failure::new(Exit::Failed, format!("no JSON of the answer: {e}")))?,
    };
    let Some(file) = &export.file else { return print(&text) };
    fs::write(file, text).map_err(|e| Failure::of_io("write", &file.display().to_string(), &e))
}

fn failure(error: &CompareError) -> Failure {
    let (exit, advice) = match error {
        CompareError::NoProgram { .. } => (Exit::Usage, "; nothing was run"),
        CompareError::Folder { .. } => (Exit::Failed, "; nothing was run"),
        CompareError::Failed(_) => (Exit::Incomplete, "; nothing was measured"),
        CompareError::Cancelled => (Exit::Failed, " before all rounds were run; nothing is shown"),
    };
    Failure::new(exit, format!("{error}{advice}"))
}
