//! Lists the environment variables of each command as a section of its long help. The list is generated from the
//! options, so that none is missing.

use clap::Command;

/// Variables that correspond to no option.
const COMMON: &str = "\
Environment:
  NO_COLOR           set and not empty: no colour, unless --color=always
  THALWEG_COLOR      sets --color
  THALWEG_CPU        hides features of the processor, e.g. -avx512f,-avx2, as if it had them not
  THALWEG_PROFILE    the file of the measured profile [default: thalweg/profile.json under XDG_STATE_HOME]
  THALWEG_STUDIES    the folder of studies
  XDG_STATE_HOME     where the profile and the results of studies are [default: ~/.local/state]
Options of each command can be set too: `thalweg COMMAND --help` lists the variables.";

/// Variables of single commands that correspond to no option.
const OF_COMMANDS: &[(&str, &str)] = &[
    (
        "copy",
        "
  VERSION_CONTROL          how to make backups, where --backup does not say
  SIMPLE_BACKUP_SUFFIX     what they end with, where --suffix does not say
  POSIXLY_CORRECT          set: a destination that is a link to nothing gets its file where it leads",
    ),
    (
        "serve",
        "
  LISTEN_FDS, LISTEN_PID   sockets that a service manager hands over",
    ),
];

/// Commands that query the features of the CPU.
const ASK_THE_PROCESSOR: &[&str] = &[
    "compare", "copy", "doctor", "list", "pipe", "plan", "receive", "send", "study", "trial",
    "tune",
];

/// Adds the section to the long help of all commands.
pub fn shown_in_help(mut root: Command) -> Command {
    let names: Vec<String> = root.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for name in names {
        root = root.mut_subcommand(name, with_section);
    }
    let examples = root.get_after_help().map(ToString::to_string).unwrap_or_default();
    root.after_long_help(format!("{examples}\n\n{COMMON}"))
}

fn with_section(command: Command) -> Command {
    let variables = command.get_arguments().filter_map(|arg| {
        let (name, option) = (arg.get_env()?.to_string_lossy(), arg.get_long()?);
        Some(format!("\n  {name:<24} sets --{option}"))
    });
    let mut variables: String = variables.collect();
    if ASK_THE_PROCESSOR.contains(&command.get_name()) {
        variables +=
            "\n  THALWEG_CPU              hides features of the processor, e.g. -avx512f,-avx2";
    }
    if variables.is_empty() {
        return command;
    }
    let own = OF_COMMANDS.iter().find(|(name, _)| *name == command.get_name());
    let own = own.map_or("", |(_, lines)| lines);
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let section =
        format!("{examples}\n\nEnvironment (the command line comes first):{variables}{own}");
    command.after_long_help(section)
}
