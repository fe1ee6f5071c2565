//! `thalweg compare`: any commands, judged as the lab judges its arms.

mod contenders;
mod printed;

use serde::Serialize;
use thalweg_core::atomic_file::write_file;
use thalweg_lab::{
    measure::stats::Random,
    probes::compare::{self, Busy, Compare, CompareError, Found, Rounds},
};
use thalweg_sys::signal;

use crate::{
    args::{CompareArgs, Export, FailIf, Form},
    exit::{Exit, Failure},
    interrupt,
    output::{
        answer::SCHEMA,
        runs::Runs,
        text::{complain, note, print, print_json},
    },
};

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
    write_file(file, text.as_bytes()).map_err(|error| Failure::of_destination(error, file))
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
