//! `thalweg fetch`: fetches files from web servers.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use thalweg_core::{
    Report,
    atomic_file::{Destination, Until},
    failed::quoted,
    rate_limit::RateLimit,
    shown,
};
use thalweg_serve::client::{
    Answered, BodySettings, Expected, Extra, FetchError, FetchFailure, FetchOptions, FetchUrl,
    Fetched, Netrc, Policy, Proxies, TlsTrust, fetch, header,
};
use thalweg_tree::Hash;

use super::Subcommand;
use crate::{
    exit::{CommandFailure, Exit, OUTPUT, advice, transfer_failure, worse},
    interrupt,
    output::{
        answer::{JsonAnswer, VerifiedCounts},
        quantity,
        summary_words::{count, time_and_rate},
        text::{self, AnswerStream, complain, keep, note, report},
    },
    profile::{Moves, SavedProfile},
    remote::{self, direction::refuse_same_names},
    stdio,
};

mod args;
mod further;
mod over;
mod sums;
mod tree;
mod watcher;

pub use args::FetchArgs;
pub use over::{OverStream, fetch_over};
use watcher::FileProgress;

/// The hint after a fetch that can continue.
const AGAIN: &str = "run the same command again to continue";

/// Default of `--retries`: the largest number of retries in a row without a received byte.
const RETRIES: u32 = 5;

impl Subcommand for FetchArgs {
    fn outlives_pipes(&self) -> bool {
        self.stdio
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        let (_, destination) = self.split();
        let carries_data = self.stdio || destination.is_some_and(|path| path.as_os_str() == "-");
        self.shown.json.then(|| AnswerStream::beside(carries_data))
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        if self.stdio {
            return over::run(self);
        }
        let options = options(self)?;
        let (urls, destination) = self.split();
        let targets: Result<Vec<FetchUrl>, FetchError> =
            urls.iter().map(|url| args::parse_url(url)).collect();
        let targets = with_users(targets.map_err(|error| failure(&error, ""))?, self)?;
        if self.is_of_trees() {
            return tree::run(self, &targets, destination, options);
        }
        if !self.chosen.is_empty() {
            let why = "--exclude and other filters require -r";
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        if !self.given.is_empty() {
            return Err(CommandFailure::new(Exit::Usage, "--chown and --chmod require -r"));
        }
        if self.hash {
            let why = "--hash requires -r; for single files use --sha256, --blake3 or --verify";
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        let places = places(&targets, destination.as_deref())?;
        if targets.len() > 1 && !options.expected.is_empty() {
            let why = "--sha256 and --blake3 require a single URL";
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        interrupt::catch();
        let sums = sums::read(self, &options)?;
        let jobs = targets.iter().zip(&places);
        let ends = jobs.map(|(target, place)| {
            let options = sums::expecting(sums.as_ref(), target, &options)?;
            self.fetch(target, place, &options)
        });
        let mut worst = Exit::Done;
        for end in ends {
            match end {
                Ok(()) => {}
                Err(failure) if targets.len() == 1 => return Err(failure),
                Err(failure) => {
                    worst = worse(worst, report(&failure));
                    if interrupt::is_interrupted() {
                        break;
                    }
                }
            }
        }
        Ok(worst)
    }
}

/// Adds user names and passwords from ~/.netrc to URLs without a user.
fn with_users(targets: Vec<FetchUrl>, args: &FetchArgs) -> Result<Vec<FetchUrl>, CommandFailure> {
    let home = std::env::var_os("HOME").filter(|_| !args.no_netrc);
    let Some(home) = home.filter(|home| !home.is_empty()) else { return Ok(targets) };
    let netrc = Netrc::read(&Path::new(&home).join(".netrc"));
    let netrc = netrc.map_err(|error| failure(&error, ""))?;
    let with_user = |target: FetchUrl| match netrc.of(&target.host().0) {
        Some((user, password)) => target.for_user(user, password),
        None => target,
    };
    Ok(targets.into_iter().map(with_user).collect())
}

/// The destination of a file.
enum FetchPlace {
    /// A file with a path from the user.
    Named(PathBuf),
    /// A directory, and the file name from the URL.
    Inside(PathBuf, std::ffi::OsString),
}

impl FetchPlace {
    fn path(&self) -> PathBuf {
        match self {
            Self::Named(path) => path.clone(),
            Self::Inside(folder, name) if folder.as_os_str() == "." => name.into(),
            Self::Inside(folder, name) => folder.join(name),
        }
    }

    fn is_output(&self) -> bool {
        matches!(self, Self::Named(path) if path.as_os_str() == "-")
    }
}

fn places(
    targets: &[FetchUrl],
    destination: Option<&Path>,
) -> Result<Vec<FetchPlace>, CommandFailure> {
    let folder = match destination {
        None => Some(Path::new(".")),
        Some(path) => Some(path).filter(|path| path.is_dir()),
    };
    let usage = |message: String| CommandFailure::new(Exit::Usage, message);
    match (folder, destination) {
        (None, Some(path)) if targets.len() == 1 => Ok(vec![FetchPlace::Named(path.to_owned())]),
        (None, path) => {
            let path = quoted(path.unwrap_or(Path::new("-")));
            Err(usage(format!(
                "{path}: not a directory; several files require an existing directory"
            )))
        }
        (Some(folder), _) => {
            let inside = |target: &FetchUrl| {
                let name = target.name().ok_or_else(|| {
                    usage(format!("{target}: the URL contains no file name"))
                        .hint("name a destination, or fetch the directory with -r")
                })?;
                Ok(FetchPlace::Inside(folder.to_owned(), name))
            };
            let places = targets.iter().map(inside).collect::<Result<Vec<_>, _>>()?;
            let named = places.iter().zip(targets).filter_map(|(place, target)| match place {
                FetchPlace::Inside(_, name) => Some((name.as_os_str(), target)),
                FetchPlace::Named(_) => None,
            });
            refuse_same_names(named)?;
            Ok(places)
        }
    }
}

fn options(args: &FetchArgs) -> Result<FetchOptions, CommandFailure> {
    let headers: Result<Vec<_>, FetchError> = args.header.iter().map(|text| header(text)).collect();
    let given =
        [(Hash::Sha256, &args.sha256, "--sha256"), (Hash::Blake3, &args.blake3, "--blake3")];
    let given =
        given.into_iter().filter_map(|(hash, digits, by)| Some((hash, digits.as_ref()?, by)));
    let expected: Result<Vec<_>, FetchError> =
        given.map(|(hash, digits, by)| Expected::of_digits(hash, digits, by)).collect();
    let usage = |error: FetchError| failure(&error, "");
    Ok(FetchOptions {
        trust: TlsTrust::of(args.cacert.clone()),
        channels: None,
        proxies: Proxies::of_environment(|name| std::env::var(name).ok()).map_err(usage)?,
        connections: args.connections,
        extra: Extra { headers: headers.map_err(usage)?, wants_digest: args.verify },
        way: BodySettings {
            policy: Policy {
                request: args.choice.request(),
                profile: SavedProfile::use_if_current(!args.choice.no_profile, Moves::Streams)
                    .current,
                needs: args.choice.needs(),
            },
            limit: args.limit.filter(|limit| *limit > 0).map(|limit| RateLimit::new(limit).into()),
            limit_each: args.limit_each.filter(|limit| *limit > 0),
        },
        stall: args.stall,
        retries: args.retries.unwrap_or(RETRIES),
        answered: args.retries.map_or_else(Answered::default, |_| Answered::assumed()),
        expected: expected.map_err(usage)?,
        verify: args.verify,
        fsync: args.durable.wanted(),
    })
}

impl FetchArgs {
    fn fetch(
        &self,
        target: &FetchUrl,
        place: &FetchPlace,
        options: &FetchOptions,
    ) -> Result<(), CommandFailure> {
        let path = place.path();
        if place.is_output() && (options.verify || !options.expected.is_empty()) {
            let why = "--verify, --sums, --sha256 and --blake3 cannot be used with standard output";
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        let destination = self.open(place)?;
        let watcher = FileProgress::new(self, &path);
        let ended = fetch(target, destination, options, &watcher);
        self.report(ended, target, place, &watcher)
    }

    /// Prints the result.
    fn report(
        &self,
        ended: Result<Fetched, Box<FetchFailure>>,
        target: &FetchUrl,
        place: &FetchPlace,
        watcher: &FileProgress,
    ) -> Result<(), CommandFailure> {
        let path = place.path();
        let (report, answer, end) = match ended {
            Ok(fetched) => {
                watcher.finish(fetched.report.bytes);
                warn_of_refused(fetched.refused_xattrs, &path);
                let answer = answer(&fetched);
                if !self.no_summary && !self.shown.quiet && (self.verbose || !self.shown.json) {
                    note(&self.words(&fetched, &path));
                }
                (fetched.report, answer, Ok(()))
            }
            Err(failed) => {
                watcher.finish(failed.report.bytes);
                let failure = of_failed(&failed, target, &path);
                let error = Some(failure.one_line());
                let answer = JsonAnswer { files: 0, error, ..JsonAnswer::of(&failed.report) };
                (failed.report, answer, Err(failure))
            }
        };
        if self.shown.json {
            let answer = JsonAnswer { bytes: report.bytes, ..answer };
            let stream = AnswerStream::beside(place.is_output() || self.stdio);
            keep(text::answer(&answer.line(), stream));
        }
        end
    }

    fn open(&self, place: &FetchPlace) -> Result<Destination, CommandFailure> {
        let opened = match place {
            FetchPlace::Named(path) if path.as_os_str() == "-" => return stdio::destination(path),
            FetchPlace::Named(path) => Destination::open_until(path, Until::Part),
            FetchPlace::Inside(folder, name) => {
                Destination::in_folder_until(folder, name, self.force, Until::Part)
            }
        };
        opened.map_err(|error| CommandFailure::of_destination(error, &place.path()))
    }

    /// Returns text such as `'big.iso' fetched (1.2 GiB) in 4.0 s, 300.0 MiB/s, 200.0 MiB from an earlier run`.
    fn words(&self, fetched: &Fetched, path: &Path) -> String {
        let report = &fetched.report;
        let fetched_to = if path.as_os_str() == "-" {
            format!("fetched to {OUTPUT}")
        } else {
            format!("{} fetched", quoted(path))
        };
        let mut text = format!(
            "{fetched_to} ({}){}",
            quantity::bytes(fetched.bytes),
            time_and_rate(report.bytes, report.wall),
        );
        if fetched.resumed > 0 {
            let _ = write!(text, ", {} from an earlier run", quantity::bytes(fetched.resumed));
        }
        if !fetched.checked.is_empty() {
            let _ = write!(text, ", {} verified", fetched.checked.join(" and "));
        }
        if self.verbose {
            text += &by(report);
        }
        text
    }
}

/// Formats the CPU time, and the bytes moved by each mechanism.
fn by(report: &Report) -> String {
    let mut text = format!(", {} CPU time", quantity::duration(report.cpu));
    for share in &report.shares {
        let _ = write!(text, "\n  {} by {}", quantity::bytes(share.bytes), share.mechanism);
    }
    for step in &report.steps_down {
        let _ = write!(
            text,
            "\n  fell back from {} to {}: {}: {}",
            step.from, step.to, step.call, step.reason
        );
    }
    text
}

fn answer(fetched: &Fetched) -> JsonAnswer {
    let asked = !fetched.checked.is_empty();
    let verified = VerifiedCounts {
        asked,
        same: u64::from(asked),
        bytes: if asked { fetched.bytes } else { 0 },
        hash: fetched.checked.first().copied(),
        ..VerifiedCounts::default()
    };
    let attributes_dropped = fetched.refused_xattrs;
    let (resumed, answer) = (fetched.resumed, JsonAnswer::of(&fetched.report));
    JsonAnswer { attributes_dropped, resumed, verified, ..answer }
}

/// Prints a warning if the destination refused extended attributes.
fn warn_of_refused(number: u64, path: &Path) {
    if number > 0 {
        let attributes = count(number, "extended attribute", "extended attributes");
        let what = format!("the file system refused {attributes}; copied without them");
        complain(&format!("warning: {}: {what}", quoted(path)));
    }
}

/// Formats the error of one file: URL or path, reason, offset, and advice.
fn of_failed(failed: &FetchFailure, target: &FetchUrl, path: &Path) -> CommandFailure {
    let mut failure = failure(&failed.error, &format!("'{}': ", shown(&target.to_string())));
    if let FetchError::Destination(error) = failed.error {
        failure = CommandFailure::of_destination(error, path);
    }
    if let FetchError::Moved(error) = &failed.error {
        let sink = if path.as_os_str() == "-" { OUTPUT.into() } else { shown(path).to_string() };
        failure = transfer_failure(error, &target.to_string(), &sink);
    }
    if failed.kept {
        let of = failed.size.map(|size| format!(" of {}", quantity::exact(size)));
        let _ = write!(
            failure.message,
            "; kept {}{}",
            quantity::exact(failed.there),
            of.unwrap_or_default()
        );
        failure.hint = with_next(&failure.hint, AGAIN);
        if failure.exit == Exit::Failed {
            failure.exit = Exit::Incomplete;
        }
    }
    failure
}

fn failure(error: &FetchError, what: &str) -> CommandFailure {
    let exit = match error {
        FetchError::OutOfDate(_) => Exit::Incomplete,
        FetchError::Usage(_) => Exit::Usage,
        FetchError::Unsupported(_) => Exit::Unsupported,
        FetchError::Differs { .. } => Exit::Differ,
        _ => Exit::Failed,
    };
    let hint = match error {
        FetchError::Moved(error) => advice(error.errno),
        FetchError::Unreached { .. } => {
            "check the host and the port; --retries 5 waits for a server that is starting"
        }
        FetchError::Remote { host, code, .. } => {
            let message = error.to_string();
            let hint = remote::hint(host, *code);
            return CommandFailure::new(exit, message).hint(hint).of_program(*code);
        }
        _ => "",
    };
    CommandFailure::new(exit, format!("{what}{error}")).hint(hint)
}

/// Appends another hint.
fn with_next(hint: &str, next: &str) -> String {
    if hint.is_empty() { next.to_owned() } else { format!("{hint}; {next}") }
}
