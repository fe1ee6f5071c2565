//! Builds the commands to compare from the arguments, once for each combination of `--scan` values.

use std::ffi::{OsStr, OsString};
use thalweg_measure::{
    arms::command::{fill, find},
    compare::ComparedCommand,
};

use super::args::{CompareArgs, Scan};
use crate::{
    args::words,
    exit::{CommandFailure, Exit},
};

/// A value for each `--scan`, in the order of the options.
type Values<'s> = Vec<(&'s Scan, &'s str)>;

/// Returns one entry for each command and combination of scan values. With several commands, an entry is compared with
/// the first command at the same values. With a single command, it is compared with the first combination.
pub fn read(args: &CompareArgs) -> Result<Vec<ComparedCommand>, CommandFailure> {
    let commands = commands(args)?;
    let option = |option, text: &Option<String>| {
        text.as_ref().map_or(Ok(Vec::new()), |text| in_shell(args, option, text))
    };
    let (prepare, check) = (option("--prepare", &args.prepare)?, option("--check", &args.check)?);
    refuse_unused(args, &commands, &[&prepare, &check])?;
    if !args.name.is_empty() && args.name.len() != commands.len() {
        let (names, commands) = (args.name.len(), commands.len());
        return Err(usage(format!(
            "--name was given {names} times, but there are {commands} commands"
        )));
    }
    let mut contenders: Vec<ComparedCommand> = Vec::new();
    for values in combinations(&args.scan) {
        let first = if commands.len() == 1 { 0 } else { contenders.len() };
        for (number, command) in commands.iter().enumerate() {
            let words = filled(&command.words, &values);
            let name = match args.name.get(number) {
                Some(name) => named(name, &values),
                None => joined(&filled(&command.written, &values)),
            };
            contenders.push(ComparedCommand {
                name,
                words,
                against: (first != contenders.len()).then_some(first),
                prepare: filled(&prepare, &values),
                check: filled(&check, &values),
            });
        }
    }
    Ok(contenders)
}

/// A command as given by the user.
struct GivenCommand {
    words: Vec<OsString>,
    /// The words as the user wrote them.
    written: Vec<OsString>,
}

/// Splits the arguments at `--` into groups. If the first word of a group contains spaces and is not the name of a
/// program, each word of the group is a command. Otherwise the group is one command.
fn commands(args: &CompareArgs) -> Result<Vec<GivenCommand>, CommandFailure> {
    let mut commands = Vec::new();
    for group in args.commands.split(|word| word == "--").filter(|group| !group.is_empty()) {
        let is_whole = |word: &OsString| {
            word.to_str().is_some_and(|text| text.contains(char::is_whitespace))
                && find(word).is_err()
        };
        if is_whole(&group[0]) {
            for word in group {
                let text = word.to_string_lossy();
                let words = in_shell(args, "--", &text)?;
                commands.push(GivenCommand { words, written: vec![word.clone()] });
            }
        } else {
            let text = joined(group);
            let words =
                if args.shell.is_some() { in_shell(args, "--", &text)? } else { group.to_vec() };
            commands.push(GivenCommand { words, written: group.to_vec() });
        }
    }
    if commands.is_empty() {
        return Err(usage("no command after --"));
    }
    if commands.len() == 1 && args.scan.is_empty() {
        let hint = "write `--` between two commands: `-- COMMAND1 -- COMMAND2`; or use --scan";
        return Err(usage("cannot compare a single command").hint(hint));
    }
    Ok(commands)
}

/// Joins words as a user would write them. A single word is a whole command already, so it is returned without quotes.
fn joined(words: &[OsString]) -> String {
    let texts = words.iter().map(|word| word.to_string_lossy());
    let texts: Vec<_> = texts.collect();
    match texts.as_slice() {
        [one] => one.to_string(),
        several => {
            shlex::try_join(several.iter().map(AsRef::as_ref)).unwrap_or_else(|_| several.join(" "))
        }
    }
}

/// Returns the words of a command that is given as text: `SHELL -c TEXT` with `--shell`, otherwise the split text.
fn in_shell(args: &CompareArgs, option: &str, text: &str) -> Result<Vec<OsString>, CommandFailure> {
    match &args.shell {
        Some(shell) => Ok(vec![shell.into(), "-c".into(), text.into()]),
        None => words(option, text),
    }
}

/// Returns an error if no command contains the placeholder of a scan. All runs of this scan would be identical.
fn refuse_unused(
    args: &CompareArgs,
    commands: &[GivenCommand],
    others: &[&[OsString]],
) -> Result<(), CommandFailure> {
    let all =
        || commands.iter().map(|command| command.words.as_slice()).chain(others.iter().copied());
    for scan in &args.scan {
        let pattern = scan.pattern();
        let stands = |word: &OsString| fill(word, &pattern, OsStr::new("")) != *word;
        if !all().flatten().any(stands) {
            return Err(usage(format!("--scan {}: no command contains {pattern}", scan.name)));
        }
    }
    Ok(())
}

/// Returns all combinations of the scans' values.
fn combinations(scans: &[Scan]) -> Vec<Values<'_>> {
    let mut all: Vec<Values<'_>> = vec![Vec::new()];
    for scan in scans {
        all = all
            .iter()
            .flat_map(|values| {
                scan.values.iter().map(move |value| {
                    let mut values = values.clone();
                    values.push((scan, value.as_str()));
                    values
                })
            })
            .collect();
    }
    all
}

fn filled(words: &[OsString], values: &Values<'_>) -> Vec<OsString> {
    let fill_all = |word: &OsString| {
        values.iter().fold(word.clone(), |word, (scan, value)| {
            fill(&word, &scan.pattern(), OsStr::new(value))
        })
    };
    words.iter().map(fill_all).collect()
}

/// Returns text such as `name, n=4`.
fn named(name: &str, values: &Values<'_>) -> String {
    let values = values.iter().map(|(scan, value)| format!(", {}={value}", scan.name));
    values.fold(name.to_owned(), |name, value| name + &value)
}

fn usage(message: impl Into<String>) -> CommandFailure {
    CommandFailure::new(Exit::Usage, message)
}
