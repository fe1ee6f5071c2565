//! `thalweg trial`: runs a program under each copy kernel in the lab.

mod args;
mod printed;

use serde::Serialize;
use std::time::Duration;
use thalweg_core::{Prefer, bands::Band, cadence::REACTION, profile::Load};
use thalweg_lab::trial::{
    self, KernelBands, Server, ServerReady, TrialError, TrialJob, TrialResult, Tunables,
    tunables_given,
};
use thalweg_measure::stats::Random;
use thalweg_sys::signal;

pub use args::TrialArgs;

use super::Subcommand;
use crate::{
    args::words,
    exit::{CommandFailure, Exit},
    interrupt,
    output::{
        answer::SCHEMA,
        quantity,
        text::{note, print, print_json},
    },
    profile::SavedProfile,
};

impl Subcommand for TrialArgs {
    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        let metric = self.metric.get();
        let server = server(self)?;
        let tunables = tunables(&self.tunables)?;
        // `interrupt::catch` would block SIGTERM in this thread. Child processes would inherit this, and SIGTERM could
        // not end them. This call fails only for an invalid signal number.
        let _ = signal::catch_interrupts();
        if !self.json {
            note("running each variant once to estimate the time");
        }
        let measured = self.bands.is_none().then(measured_bands);
        let found = trial::run(&TrialJob {
            command: &self.command,
            server: server.as_ref(),
            kernels: self.kernels.as_deref(),
            bands: self.bands.as_ref().or(measured.as_ref()),
            tunables,
            metric: &metric,
            rounds: self.runs as usize,
            limit: Some(Duration::from_secs(self.timeout)),
            seed: self.seed.unwrap_or_else(Random::any_seed),
            stop: &interrupt::check,
            say: &|line| {
                if !self.json {
                    note(line);
                }
            },
        });
        let found = found.map_err(|error| failure(&error))?;
        if self.json {
            print_json(&TrialAnswer { found: &found, schema: SCHEMA })?;
        } else {
            print(&printed::text(&found, &metric, color))?;
        }
        let failed = found.rows.iter().filter(|row| row.failed.is_some()).count();
        if failed == 0 {
            return Ok(Exit::Done);
        }
        let variants = quantity::count(failed as u64, "variant", "variants");
        Err(CommandFailure::new(Exit::Failed, format!("{variants} failed")))
    }
}

/// Returns the best copy and fill kernels for each range of sizes in the profile; empty without a valid profile.
fn measured_bands() -> KernelBands {
    let Some(profile) = SavedProfile::find(true).of_memory else { return KernelBands::default() };
    let named = |bands: Vec<Band>| {
        bands.into_iter().map(|band| (band.end(), band.kernel)).collect::<Vec<(u64, String)>>()
    };
    let (load, prefer) = (Load::Idle, Prefer::Wall);
    KernelBands {
        copies: named(profile.kernel_bands(load, prefer)),
        fills: named(profile.fill_bands(load, prefer)),
    }
}

#[derive(Serialize)]
struct TrialAnswer<'f> {
    #[serde(flatten)]
    found: &'f TrialResult,
    schema: u32,
}

fn server(args: &TrialArgs) -> Result<Option<Server>, CommandFailure> {
    let Some(server) = &args.server else { return Ok(None) };
    let command = words("--server", server)?;
    let ready = match (&args.ready, args.port) {
        (Some(ready), _) => ServerReady::Command(words("--ready", ready)?),
        (None, Some(port)) => ServerReady::Port(port),
        // Not reached: the parser requires one of the two options.
        (None, None) => {
            return Err(CommandFailure::new(Exit::Usage, "--server needs --ready or --port"));
        }
    };
    // A `--timeout` shorter than `REACTION` also limits the start of the server.
    let within = REACTION.min(Duration::from_secs(args.timeout));
    Ok(Some(Server { command, ready, within }))
}

fn tunables(asked: &[String]) -> Result<Tunables, CommandFailure> {
    if asked.iter().all(|which| which == "usual") {
        return Ok(Tunables::Usual);
    }
    let given = asked.iter().filter(|which| *which != "none").map(|which| tunables_given(which));
    let given = given.collect::<Result<Vec<_>, String>>();
    given
        .map(Tunables::These)
        .map_err(|why| CommandFailure::new(Exit::Usage, format!("--tunables {why}")))
}

fn failure(error: &TrialError) -> CommandFailure {
    let (exit, advice) = match error {
        TrialError::NoProgram { .. } | TrialError::NoKernel { .. } => (Exit::Usage, ""),
        TrialError::NothingToTry(_) => (Exit::Usage, "; use other --kernels, or --tunables usual"),
        TrialError::Unreachable(_) => (Exit::Unsupported, "; nothing was measured"),
        TrialError::NoObject(_) => (Exit::Unsupported, ""),
        TrialError::Folder { .. } => (Exit::Failed, ""),
        TrialError::Program(_) => (Exit::Failed, "; nothing was measured"),
        TrialError::Cancelled(_) => (Exit::Failed, " before all rounds were complete; no result"),
    };
    CommandFailure::new(exit, format!("{error}{advice}"))
}
