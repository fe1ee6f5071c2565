//! From the command line to the commands that are run, one for each value that is scanned.

use std::ffi::{OsStr, OsString};
use thalweg_lab::{
    arms::command::{fill, find},
    probes::compare::Contender,
};

use super::args::{CompareArgs, Scan};
use crate::{
    args::words,
    exit::{Exit, Failure},
};

/// A value of each scan, in their order.
type Values<'s> = Vec<(&'s Scan, &'s str)>;

/// The commands; several are compared with the first one of the same values, one alone with itself at
/// the first values.
pub fn read(args: &CompareArgs) -> Result<Vec<Contender>, Failure> {
    let commands = commands(args)?;
    let option = |option, text: &Option<String>| {
        text.as_ref().map_or(Ok(Vec::new()), |text| in_shell(args, option, text))
    };
    let (prepare, check) = (option("--prepare", &args.prepare)?, option("--check", &args.check)?);
    refuse_unused(args, &commands, &[&prepare, &check])?;
    if !args.name.is_empty() && args.name.len() != commands.len() {
        let (names, commands) = (args.name.len(), commands.len());
        return Err(usage(format!("--name is given {names} times for {commands} commands")));
    }
    let mut contenders: Vec<Contender> = Vec::new();
    for values in combinations(&args.scan) {
        let first = if commands.len() == 1 { 0 } else { contenders.len() };
        for (number, command) in commands.iter().enumerate() {
            let words = filled(&command.words, &values);
            let name = match args.name.get(number) {
                Some(name) => named(name, &values),
                None => joined(&filled(&command.written, &values)),
            };
            contenders.push(Contender {
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

/// A command as it was given.
struct Given {
    words: Vec<OsString>,
    /// The same as a person wrote them.
    written: Vec<OsString>,
}

/// The commands between the `--`. A group whose first word is a whole command in quotes holds nothing
/// else; any other is one command.
fn commands(args: &CompareArgs) -> Result<Vec<Given>, Failure> {
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
                commands.push(Given { words, written: vec![word.clone()] });
            }
        } else {
            let text = joined(group);
            let words =
                if args.shell.is_some() { in_shell(args, "--", &text)? } else { group.to_vec() };
            commands.push(Given { words, written: group.to_vec() });
        }
    }
    if commands.is_empty() {
        return Err(usage("there is no command after --"));
    }
    if commands.len() == 1 && args.scan.is_empty() {
        return Err(usage(
            "one command alone is compared with nothing: give another one after `--`, or --scan",
        ));
    }
    Ok(commands)
}

/// Words as a person would write them; one alone is a whole command already.
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

/// The words of a command given as one text: a shell's, or split here.
fn in_shell(args: &CompareArgs, option: &str, text: &str) -> Result<Vec<OsString>, Failure> {
    match &args.shell {
        Some(shell) => Ok(vec![shell.into(), "-c".into(), text.into()]),
        None => words(option, text),
    }
}

/// A scan whose name stands nowhere would run the same again and again.
fn refuse_unused(
    args: &CompareArgs,
    commands: &[Given],
    others: &[&[OsString]],
) -> Result<(), Failure> {
    let all =
        || commands.iter().map(|command| command.words.as_slice()).chain(others.iter().copied());
    for scan in &args.scan {
        let pattern = scan.pattern();
        let stands = |word: &OsString| fill(word, &pattern, OsStr::new("")) != *word;
        if !all().flatten().any(stands) {
            return Err(usage(format!("--scan {}: {pattern} stands in no command", scan.name)));
        }
    }
    Ok(())
}

/// Every value of each scan with every one of the others.
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

/// `name, n=4`.
fn named(name: &str, values: &Values<'_>) -> String {
    let values = values.iter().map(|(scan, value)| format!(", {}={value}", scan.name));
    values.fold(name.to_owned(), |name, value| name + &value)
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message)
}
