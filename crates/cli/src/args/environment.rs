//! Lists the environment variables of each command as a section of its long help. The list is generated from the
//! options, so that none is missing.

use clap::Command;

/// Variables of the whole program that set no option, and `THALWEG_COLOR`.
const COMMON: &str = "\
Environment:
  NO_COLOR         if not empty, disables colour, unless --color=always
  THALWEG_COLOR    sets --color
  THALWEG_CPU      hides CPU features, e.g. -avx512f,-avx2
  THALWEG_PROFILE  profile of this machine
                   [default: $XDG_STATE_HOME/thalweg/profile.json]
  THALWEG_STUDIES  directory of studies
  XDG_STATE_HOME   directory of profile and results [default: ~/.local/state]

Other variables set options of the commands: see `thalweg COMMAND --help`.";

/// Variables of single commands that set no option.
const OF_COMMANDS: &[(&str, &str)] = &[
    (
        "copy",
        "
  VERSION_CONTROL          kind of backups, unless --backup sets it
  SIMPLE_BACKUP_SUFFIX     suffix of backups, unless --suffix sets it
  POSIXLY_CORRECT          if set, writes through a dangling symbolic link",
    ),
    (
        "serve",
        "
  LISTEN_FDS, LISTEN_PID   sockets from a service manager",
    ),
];

/// Commands that query the features of the CPU, so `THALWEG_CPU` affects them.
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
        variables += "\n  THALWEG_CPU              hides CPU features, e.g. -avx512f,-avx2";
    }
    if variables.is_empty() {
        return command;
    }
    let own = OF_COMMANDS.iter().find(|(name, _)| *name == command.get_name());
    let own = own.map_or("", |(_, lines)| lines);
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let section = format!(
        "{examples}\n\nEnvironment (options on the command line take precedence):{variables}{own}"
    );
    command.after_long_help(section)
}
