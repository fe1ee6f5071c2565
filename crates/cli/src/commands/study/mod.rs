//! `thalweg study`: runs studies in the lab and prints the results. The lab measures and judges, not this module.

mod args;
mod check;
mod extend;
mod list;
mod live;
mod rejudge;
mod tables;
mod unfinished;

use serde_json::json;
use std::{
    borrow::Cow,
    env,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_core::{
    atomic_file::{Destination, DestinationError},
    quantity::parse_some_bytes,
};
use thalweg_lab::{
    arms::CATALOGUE,
    study::{
        carried,
        new::{self, NewError},
        result::StudyResult,
        run::{self, RunError, RunStage},
        settings::{Settings, SizeSelection},
        store::{self, Loaded},
    },
};
use thalweg_measure::preset::Preset;

pub use args::StudyArgs;
use extend::ExtendedResult;
use unfinished::{RunPlace, UnfinishedStudies};

use super::Subcommand;
use crate::{
    exit::{CommandFailure, Exit, worse},
    interrupt,
    output::{
        answer::SCHEMA,
        quantity,
        text::{self, complain, note, print, print_json},
    },
};

impl Subcommand for StudyArgs {
    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        if let Some(at) = &self.new {
            let written = new::new(at).map_err(|error| match error {
                NewError::Usage(reason) => CommandFailure::new(Exit::Usage, reason),
                NewError::Write { path, error } => CommandFailure::of_destination(error, &path),
            })?;
            let lines = written.iter().map(|path| format!("{}\n", path.display()));
            print(&lines.collect::<String>())?;
            return Ok(Exit::Done);
        }
        if self.check {
            return check::check(self);
        }
        if !self.rejudge.is_empty() {
            return rejudge::rejudge(self, color);
        }
        if self.studies.is_empty() {
            return list::list(self, color);
        }
        self.measure(&chosen(&self.studies)?, color)
    }
}

impl StudyArgs {
    /// Runs the studies, and saves and shows their results.
    fn measure(&self, studies: &[Loaded], color: bool) -> Result<Exit, CommandFailure> {
        let mut settings = settings(self)?;
        let at = self.at.clone().unwrap_or_else(scratch);
        let open = |path| ExtendedResult::open(path, studies, &at, &settings.pinned);
        let extended = self.extend.as_deref().map(open).transpose()?;
        // A run may take hours, so a file that cannot be created is an error now.
        let csv = self.csv.as_deref().map(CsvFile::open).transpose()?;
        let program =
            env::current_exe().map_err(|e| CommandFailure::of_io("find", "this program", &e))?;
        let place = RunPlace { program: &program, at: &at };
        let unfinished = UnfinishedStudies::open(self, studies, &mut settings, place);
        settings.command = command(self, &settings);
        interrupt::catch();
        let mut live = live::Live::new();
        let answers = run::run(
            studies,
            &settings,
            &mut RunStage {
                program: &program,
                at: &at,
                stop: &interrupt::check,
                watch: &mut |progress| live.show(progress),
                unfinished: unfinished.root(),
            },
        );
        live.finish();
        let mut results = Vec::new();
        let mut exit = Exit::Done;
        for answer in answers {
            match answer {
                Ok(result) => results.push(result),
                Err(error) => exit = worse(exit, report(&error)),
            }
        }
        if let Some(line) = live::slowest(&results).filter(|_| self.verbose) {
            note(&line);
        }
        // A result that cannot be saved is still shown.
        let kept = results.iter_mut().map(|result| {
            match &extended {
                Some(extended) => *result = extended.add(result.clone())?,
                None => keep(self, result)?,
            }
            unfinished.remove(result);
            Ok(())
        });
        let kept: Vec<_> = kept.collect();
        if exit != Exit::Done || kept.iter().any(Result::is_err) {
            unfinished.hint(&settings);
        }
        let csv = csv.map(|file| file.write(&results));
        let mut problems: Vec<CommandFailure> =
            kept.into_iter().chain(csv).filter_map(Result::err).collect();
        problems.extend(show(self, studies, &results, color).err());
        for problem in problems {
            exit = worse(exit, text::report(&problem));
        }
        let missing = results.iter().map(|result| result.missing.len()).sum();
        Ok(worse(exit, self.without(missing)))
    }
}

impl StudyArgs {
    /// Returns the exit status if `missing` variants did not run.
    fn without(&self, missing: usize) -> Exit {
        if missing == 0 || self.allow_missing {
            return Exit::Done;
        }
        let variants = quantity::count(missing as u64, "variant", "variants");
        complain(&format!("{variants} cannot run here"));
        text::hint("use --allow-missing to succeed without the missing variants");
        Exit::Incomplete
    }
}

fn show(
    args: &StudyArgs,
    studies: &[Loaded],
    results: &[StudyResult],
    color: bool,
) -> Result<(), CommandFailure> {
    match results {
        [one] if args.json => print_json(one),
        all if args.json => print_json(&json!({ "studies": all, "schema": SCHEMA })),
        all => {
            let texts = all.iter().map(|result| {
                let by = studies.iter().find(|loaded| loaded.study.id == result.study);
                let study = by.map(|loaded| &loaded.study);
                if args.verbose {
                    tables::result(result, study, color)
                } else {
                    tables::claims(result, study, color)
                }
            });
            print(&texts.collect::<Vec<_>>().join("\n"))?;
            if all.len() > 1 {
                print(&tables::summary(all, color))?;
            }
            print(if args.verbose { "" } else { "hint: -v shows reasons and measurements\n" })
        }
    }
}

/// Returns the named studies without duplicates.
fn chosen(names: &[String]) -> Result<Vec<Loaded>, CommandFailure> {
    let usage = |reason: String| CommandFailure::new(Exit::Usage, reason);
    let mut studies: Vec<Loaded> = Vec::new();
    for name in names {
        let found = if is_path(name) {
            vec![Loaded::read(Path::new(name), &CATALOGUE).map_err(|e| usage(e.to_string()))?]
        } else {
            in_folder(name)?
        };
        for loaded in found {
            if !studies.iter().any(|known| known.study.id == loaded.study.id) {
                studies.push(loaded);
            }
        }
    }
    Ok(studies)
}

fn is_path(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|e| e == "toml")
}

/// Finds a study by its id: in the directory of studies, otherwise among those built into this program.
fn in_folder(name: &str) -> Result<Vec<Loaded>, CommandFailure> {
    let usage = |reason: String| CommandFailure::new(Exit::Usage, reason);
    let folder = store::studies_folder().map_err(usage)?;
    match by_id(name, &folder) {
        Err(failure) if carried::ids().any(|id| id == name) => {
            let carried = carried::folder().map_err(usage)?;
            if carried == folder { Err(failure) } else { by_id(name, &carried) }
        }
        found => found,
    }
}

fn by_id(name: &str, folder: &Path) -> Result<Vec<Loaded>, CommandFailure> {
    let usage = |reason: String| CommandFailure::new(Exit::Usage, reason);
    let all = Loaded::folder(folder, &CATALOGUE).map_err(|e| usage(e.to_string()))?;
    if name == "all" {
        let all: Result<Vec<Loaded>, _> = all.into_iter().collect();
        let mut all = all.map_err(|e| usage(e.to_string()))?;
        all.retain(|loaded| !loaded.study.only_by_name);
        return Ok(all);
    }
    let mut ids = Vec::new();
    for loaded in all {
        match loaded {
            Ok(loaded) if loaded.study.id == name => return Ok(vec![loaded]),
            Ok(loaded) => ids.push(loaded.study.id),
            // The study with this error may be the requested one.
            Err(error)
                if error
                    .path
                    .file_stem()
                    .is_some_and(|s| s.to_string_lossy().starts_with(name)) =>
            {
                return Err(usage(error.to_string()));
            }
            Err(error) => complain(&error.to_string()),
        }
    }
    let (folder, ids) = (folder.display(), ids.join(", "));
    let carried = carried::ids().collect::<Vec<_>>().join(", ");
    Err(usage(format!(
        "no study {name:?} in {folder}; found {ids}; included in this program: {carried}"
    )))
}

fn settings(args: &StudyArgs) -> Result<Settings, CommandFailure> {
    let preset = preset(args);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(now.as_nanos() as u64 % 1_000_000);
    let mut settings = Settings::of(preset, seed);
    settings.sessions = args.sessions.map_or(settings.sessions, |n| n as usize);
    settings.rounds = args.rounds.map_or(settings.rounds, |n| n as usize);
    settings.pause = args.pause.unwrap_or(settings.pause);
    settings.sample = args.sample.unwrap_or(settings.sample).max(Duration::from_micros(1));
    settings.pinned.clone_from(&args.pin);
    settings.only.clone_from(&args.only);
    if !args.sizes.is_empty() {
        for size in &args.sizes {
            parse_some_bytes(size)
                .map_err(|e| CommandFailure::new(Exit::Usage, format!("--sizes: {e}")))?;
        }
        settings.sizes = SizeSelection::These(args.sizes.clone());
    }
    let changed = args.sessions.is_some() || args.rounds.is_some() || args.sample.is_some();
    if changed || args.pause.is_some() {
        "custom".clone_into(&mut settings.preset);
    }
    Ok(settings)
}

fn preset(args: &StudyArgs) -> Preset {
    match (args.quick, args.full) {
        (true, _) => Preset::QUICK,
        (_, true) => Preset::FULL,
        _ => Preset::STANDARD,
    }
}

/// Returns the shell command that repeats the run.
fn command(args: &StudyArgs, settings: &Settings) -> String {
    let preset = preset(args);
    let quoted =
        |word: &str| shlex::try_quote(word).map_or_else(|_| word.to_owned(), Cow::into_owned);
    let mut words = vec!["thalweg study".to_owned()];
    words.extend(args.studies.iter().map(|study| quoted(study)));
    if preset != Preset::STANDARD {
        words.push(format!("--{}", preset.name));
    }
    let mut option = |name: &str, value: Option<String>| {
        let value = value.filter(|value| !value.is_empty());
        words.extend(value.map(|value| format!("--{name} {}", quoted(&value))));
    };
    option("sessions", args.sessions.map(|n| n.to_string()));
    option("rounds", args.rounds.map(|n| n.to_string()));
    let time = |time: Option<Duration>| {
        time.map(|t| humantime::format_duration(t).to_string().replace(' ', ""))
    };
    option("pause", time(args.pause));
    option("sample", time(args.sample));
    option("pin", Some(args.pin.iter().map(usize::to_string).collect::<Vec<_>>().join(",")));
    option("only", Some(args.only.join(",")));
    option("sizes", Some(args.sizes.join(",")));
    option("at", args.at.as_ref().map(|at| at.display().to_string()));
    option("seed", Some(settings.seed.to_string()));
    words.join(" ")
}

/// Returns a directory for scratch files. Files in /var/tmp survive a reboot, so they are on a disk if the machine
/// has one.
fn scratch() -> PathBuf {
    let lasting = PathBuf::from("/var/tmp");
    if lasting.is_dir() { lasting } else { env::temp_dir() }
}

/// Saves a result and prints its path.
fn keep(args: &StudyArgs, result: &StudyResult) -> Result<(), CommandFailure> {
    if args.no_save {
        return Ok(());
    }
    let Some(folder) = args.save.clone().or_else(store::results_folder) else {
        complain("warning: the result was not saved");
        text::hint("use --save DIR");
        return Ok(());
    };
    let path = store::save(result, &folder);
    let path = path.map_err(|e| CommandFailure::new(Exit::Failed, e.to_string()))?;
    note(&format!("saved in {}", path.display()));
    Ok(())
}

/// The file of `--csv`.
struct CsvFile<'p> {
    path: &'p Path,
    file: Destination,
}

impl<'p> CsvFile<'p> {
    fn open(path: &'p Path) -> Result<Self, CommandFailure> {
        let file = Destination::open(path);
        Ok(Self { path, file: file.map_err(|e| CommandFailure::of_destination(e, path))? })
    }

    /// Writes every sample of the results, one per line.
    fn write(mut self, results: &[StudyResult]) -> Result<(), CommandFailure> {
        let written = self.file.write(store::csv(results).as_bytes(), &|| Ok(()));
        let written = written.map_err(DestinationError::from).and_then(|()| self.file.publish());
        written.map_err(|error| CommandFailure::of_destination(error, self.path))
    }
}

/// Prints an error and returns the exit status for it.
fn report(error: &RunError) -> Exit {
    complain(&error.to_string());
    match error {
        RunError::Wrong { .. } => Exit::Differ,
        RunError::Settings(_) => Exit::Usage,
        RunError::Session { .. } | RunError::Cancelled(_) => Exit::Failed,
    }
}
