//! The `thalweg` command.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod endpoint_arg;
mod exit;
mod interrupt;
mod output;
mod profile;
mod progress;
mod remote;
mod stdio;

use clap::{
    ColorChoice, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use rustix::process::{Resource, getrlimit};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    mem,
    process::ExitCode,
    thread,
};
use thalweg_core::cpu;
use thalweg_sys::signal;

use args::shown_in_help;
use commands::{Cli, parser_of};
use exit::{CommandFailure, Exit, OUTPUT};
use output::text;

/// Stack size that a command may need. The limit on the first thread's stack, `ulimit -s`, can be lower.
const STACK: u64 = 2 << 20;

fn main() -> ExitCode {
    let least = getrlimit(Resource::Stack).current;
    if least.is_none_or(|bytes| bytes >= STACK) {
        return run();
    }
    let started = thread::Builder::new().stack_size(STACK as usize).spawn(run);
    // If the thread cannot be created, the existing stack may still suffice.
    started.map_or_else(|_| run(), |thread| thread.join().unwrap_or(ExitCode::FAILURE))
}

fn run() -> ExitCode {
    let cli = match parsed(&words()) {
        Ok(cli) => cli,
        Err(error) => {
            quiet_about_closed_pipes();
            return help_or_usage(&error).unwrap_or_else(|failure| text::report(&failure)).into();
        }
    };
    if !cli.outlives_pipes() {
        quiet_about_closed_pipes();
    }
    stdio::disarm_closed();
    // Without this, SIGXFSZ would kill the process before it can report or clean up.
    let _ = signal::ignore_sigxfsz();
    let hidden = cpu::hidden().map_err(|error| CommandFailure::new(Exit::Usage, error));
    let exit = hidden.and_then(|_| cli.run()).unwrap_or_else(|failure| {
        let exit = text::report(&failure);
        cli.answer_failed(&failure);
        exit
    });
    let lost = text::lost().map_or(Exit::Done, |failure| text::report(&failure));
    let exit = if exit == Exit::Done { lost } else { exit };
    exit.as_interrupted().into()
}

/// Prints the help or the version on standard output, or the usage error on standard error.
fn help_or_usage(error: &clap::Error) -> Result<Exit, CommandFailure> {
    if error.use_stderr() {
        let _ = error.print();
        if let Some(hint) = hint_of_dashes(error) {
            let _ = writeln!(io::stderr(), "{hint}");
        }
        return Ok(Exit::Usage);
    }
    stdio::expect_open(1, OUTPUT)?;
    let written = error.print().and_then(|()| io::stdout().flush());
    written.map(|()| Exit::Done).map_err(|e| CommandFailure::of_io("write", OUTPUT, &e))
}

/// Returns a hint if `--` is missing before the command to measure.
fn hint_of_dashes(error: &clap::Error) -> Option<String> {
    let name =
        words().get(1)?.to_str().filter(|name| matches!(*name, "compare" | "trial"))?.to_owned();
    let unexpected = error.kind() == ErrorKind::UnknownArgument;
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let command = unexpected && !word.starts_with('-');
    command
        .then(|| format!("hint: write `--` before the command to measure: thalweg {name} -- ..."))
}

/// Parses the command line. Plain command lines need no clap. For all others, the parser of the named command is tried
/// first, then the parser of all commands.
fn parsed(words: &[OsString]) -> Result<Cli, clap::Error> {
    if let Some(cli) = Cli::of_plain(words) {
        return Ok(cli);
    }
    let name = words.get(1).and_then(|word| word.to_str());
    let parse = |mut parser: clap::Command| {
        let matches = parser.try_get_matches_from_mut(words);
        // Dropping the parser would free some thousand allocations. The process exit frees them in less time.
        mem::forget(parser);
        matches.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches))
    };
    match name.and_then(parser_of).map(parse) {
        Some(Ok(cli)) => Ok(cli),
        Some(Err(version)) if version.kind() == ErrorKind::DisplayVersion => Err(version),
        // A request for help also takes this path.
        Some(Err(_)) | None => parse(command()),
    }
}

/// Returns the command line. `--json`, `-q` and `-v` are options of single commands. If they precede the command's
/// name, this function moves them behind the name.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let moves = |word: &OsString| {
        let word = word.to_str();
        word.is_some_and(|word| matches!(word, "--json" | "-q" | "--quiet" | "-v" | "--verbose"))
    };
    let first = words.iter().skip(1).take_while(|word| moves(word)).count();
    if words.len() > first + 1 {
        words[1..first + 2].rotate_left(first);
    }
    words
}

/// Restores the default action of SIGPIPE, so that a closed pipe ends thalweg like other tools. Rust's start-up code
/// ignores SIGPIPE.
fn quiet_about_closed_pipes() {
    // This can fail only for an invalid signal number.
    let _ = signal::reset_sigpipe();
}

/// Builds the parser with the requested colours, which it needs before it has parsed `--color`.
fn command() -> clap::Command {
    let mut words = std::env::args_os();
    let mut color = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.to_str() {
            Some("--") => break,
            Some("--color") => words.next(),
            Some(word) => word.strip_prefix("--color=").map(Into::into),
            None => None,
        };
        match value.as_deref().and_then(OsStr::to_str) {
            Some("always") => color = ColorChoice::Always,
            Some("never") => color = ColorChoice::Never,
            _ => {}
        }
    }
    shown_in_help(Cli::command()).color(color)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the complete help of a parser, to compare two parsers.
    fn help_of(mut parser: clap::Command) -> String {
        parser.build();
        parser.render_long_help().to_string()
    }

    #[test]
    fn a_parser_of_one_command_has_all_its_options() {
        let whole = Cli::command();
        for among in whole.get_subcommands() {
            let name = among.get_name();
            let alone = parser_of(name).expect("every command has its own parser");
            let [alone] = alone.get_subcommands().collect::<Vec<_>>()[..] else { panic!("{name}") };
            assert_eq!(help_of(alone.clone()), help_of(among.clone()));
        }
        assert!(parser_of("explain").is_none() && parser_of("--help").is_none());
    }

    #[test]
    fn variables_of_options_have_our_prefix() {
        for command in Cli::command().get_subcommands() {
            for variable in command.get_arguments().filter_map(|arg| arg.get_env()) {
                assert!(variable.as_encoded_bytes().starts_with(b"THALWEG_"), "{variable:?}");
            }
        }
    }

    #[test]
    fn a_plain_line_means_what_the_parser_says() {
        for line in ["pipe", "copy a b"] {
            let words: Vec<OsString> =
                format!("thalweg {line}").split(' ').map(Into::into).collect();
            let mut matches = command().try_get_matches_from(&words).unwrap();
            let parsed = Cli::from_arg_matches_mut(&mut matches).unwrap();
            // `of_plain` returns `None` if the environment has a variable of thalweg.
            if let Some(plain) = Cli::of_plain(&words) {
                assert_eq!(format!("{plain:?}"), format!("{parsed:?}"), "{line}");
            }
        }
        for line in ["pipe -q", "pipe --help", "copy a", "list", "--version"] {
            let words: Vec<OsString> =
                format!("thalweg {line}").split(' ').map(Into::into).collect();
            assert!(Cli::of_plain(&words).is_none(), "{line}");
        }
    }

    #[test]
    fn an_error_of_one_parser_equals_that_of_the_complete_parser() {
        let of_commands = ["copy --no-such a b", "copy --help", "copy -h", "copy", "plan"];
        let of_version = ["--version", "-V", "--version copy", "copy --version", "-V -q"];
        for line in of_commands.into_iter().chain(of_version).chain(["list --color", "-Vx"]) {
            let words: Vec<OsString> =
                format!("thalweg {line}").split(' ').map(Into::into).collect();
            let error = parsed(&words).map(drop).expect_err(line);
            let whole = command().try_get_matches_from(&words).expect_err(line);
            assert_eq!(error.to_string(), whole.to_string(), "{line}");
        }
    }
}
