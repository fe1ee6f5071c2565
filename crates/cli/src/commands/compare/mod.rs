//! `thalweg compare`: compares arbitrary commands with the statistics of the lab.

mod args;
mod contenders;
mod printed;

use serde::Serialize;
use thalweg_core::atomic_file::write_file;
use thalweg_measure::{
    busy::BusyProcessors,
    compare::{self, CompareError, CompareJob, CompareResult, Rounds},
    stats::Random,
};
use thalweg_sys::signal;

pub use args::CompareArgs;
use args::{Export, FailIf, OutputForm};

use super::Subcommand;
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::SCHEMA,
        runs::Runs,
        text::{complain, print, print_json},
    },
};

impl Subcommand for CompareArgs {
    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        let contenders = contenders::read(self)?;
        // `interrupt::catch` would block SIGTERM in this thread. Child processes would inherit this, and SIGTERM could
        // not end them. This call fails only for an invalid signal number.
        let _ = signal::catch_interrupts();
        let metric = self.metric.get();
        let runs = Runs::new(!self.json);
        let found = compare::run(&CompareJob {
            contenders: &contenders,
            metric: &metric,
            rounds: self.runs.map_or(Rounds::AtLeast(self.min_time), |n| Rounds::Fixed(n as usize)),
            warm_ups: self.warmup as usize,
            same_output: self.same_output,
            must_succeed: !self.ignore_failure,
            limit: Some(self.timeout),
            seed: self.seed.unwrap_or_else(Random::any_seed),
            stop: &interrupt::check,
            watch: &|done, all| runs.show(done, all),
        });
        runs.finish();
        let found = found.map_err(|error| failure(&error))?;
        if let Some(busy) = found.busy.filter(BusyProcessors::is_much) {
            complain(&format!(
                "warning: other processes kept {:.1} of {} cores busy before the runs",
                busy.processors, busy.of
            ));
        }
        let printed = printed::Printed { found: &found, metric: &metric, color };
        for export in &self.export {
            write(export, &printed)?;
        }
        let shown = match (self.json, self.markdown) {
            (true, _) => Some(OutputForm::Json),
            (_, true) => Some(OutputForm::Markdown),
            // An export to standard output replaces the table.
            _ => self.export.iter().all(|export| export.file.is_some()).then_some(OutputForm::Text),
        };
        if let Some(form) = shown {
            write(&Export { form, file: None }, &printed)?;
        }
        Ok(verdict(self, &found))
    }
}

fn verdict(args: &CompareArgs, found: &CompareResult) -> Exit {
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
    complain(&format!("--fail-if: slower than the first command: {}", slower.join(", ")));
    Exit::Differ
}

#[derive(Serialize)]
struct CompareAnswer<'f> {
    #[serde(flatten)]
    found: &'f CompareResult,
    schema: u32,
}

fn write(export: &Export, printed: &printed::Printed<'_>) -> Result<(), CommandFailure> {
    let answer = CompareAnswer { found: printed.found, schema: SCHEMA };
    let text = match export.form {
        OutputForm::Text => printed.text(),
        OutputForm::Markdown => printed.markdown(),
        OutputForm::Csv => printed.csv(),
        OutputForm::Json if export.file.is_none() => return print_json(&answer),
        OutputForm::Json => serde_json::to_string_pretty(&answer).map_err(|e| {
            CommandFailure::new(Exit::Failed, format!("cannot write the result as JSON: {e}"))
        })?,
    };
    let Some(file) = &export.file else { return print(&text) };
    write_file(file, text.as_bytes()).map_err(|error| CommandFailure::of_destination(error, file))
}

fn failure(error: &CompareError) -> CommandFailure {
    let (exit, advice) = match error {
        CompareError::NoProgram { .. } => (Exit::Usage, "; nothing was run"),
        CompareError::Folder { .. } => (Exit::Failed, "; nothing was run"),
        CompareError::Failed(_) => (Exit::Incomplete, "; nothing was measured"),
        CompareError::Cancelled(_) => (Exit::Failed, " before all rounds were complete; no result"),
    };
    CommandFailure::new(exit, format!("{error}{advice}"))
}
