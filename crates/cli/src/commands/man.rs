//! `thalweg man`: one page for the program and one for each subcommand. The section about mechanisms is generated
//! from the registry.

use clap::{Arg, Args, Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::{self, File},
    io::{self, IsTerminal, Seek, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{self, Stdio},
};
use thalweg_core::{MECHANISMS, atomic_file::write_file, shown};

use super::{Cli, Subcommand, list::facts_of};
use crate::{
    exit::{CommandFailure, Exit, OUTPUT},
    output::text::{print, print_bytes},
    stdio::expect_open,
};

/// Show a manual page, or write all of them to a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg man
  thalweg man copy
  thalweg man /usr/local/share/man/man1
  thalweg man . && man ./thalweg.1")]
pub struct ManArgs {
    /// Command whose page is shown, or directory for all pages
    #[arg(value_name = "COMMAND|DIR")]
    pub folder: Option<PathBuf>,
}

impl Subcommand for ManArgs {
    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let mut root = Cli::command();
        root.build();
        let Some(folder) = &self.folder else { return show(root, &mechanisms()) };
        if let Some(command) = folder.to_str().and_then(|name| root.find_subcommand(name)) {
            return show(command.clone(), &environment(command));
        }
        let is_path = folder.as_os_str().as_bytes().contains(&b'/');
        if !is_path && !folder.is_dir() {
            let message = format!("'{}': no such command or directory", shown(folder));
            return Err(CommandFailure::new(Exit::Usage, message)
                .hint("for a new directory, write a path with a slash, such as ./man"));
        }
        fs::create_dir_all(folder)
            .map_err(|e| CommandFailure::of_io("mkdir", &folder.display().to_string(), &e))?;
        for command in root.get_subcommands() {
            if command.get_name() != "help" && !command.is_hide_set() {
                let name = format!("thalweg-{}", command.get_name());
                write_page(folder, &name, &page(command.clone(), &environment(command))?)?;
            }
        }
        write_page(folder, "thalweg", &page(root, &mechanisms())?)?;
        Ok(Exit::Done)
    }
}

/// Shows the page with `man`, or the long help if `man` is not available.
fn show(mut command: Command, more: &Roff) -> Result<Exit, CommandFailure> {
    expect_open(1, OUTPUT)?;
    let text = command.render_long_help().to_string();
    let formatted = formatted(&page(command, more)?);
    formatted.map_or_else(|| print(&text), |page| print_bytes(&page))?;
    Ok(Exit::Done)
}

/// Returns the page as formatted by `man`. On a terminal `man` shows it in its pager, and the result is empty.
/// Otherwise the output passes through this process, because `man` does not report write errors.
fn formatted(page: &[u8]) -> Option<Vec<u8>> {
    let mut input = File::from(memfd_create("page", MemfdFlags::CLOEXEC).ok()?);
    input.write_all(page).and_then(|()| input.rewind()).ok()?;
    let has_pager = io::stdout().is_terminal();
    let output = if has_pager { Stdio::inherit() } else { Stdio::piped() };
    let mut man = process::Command::new("man");
    let man = man.args(["-l", "-"]).stdin(input).stdout(output).stderr(Stdio::inherit());
    let done = man.output().ok()?;
    (done.status.success() && (has_pager || !done.stdout.is_empty())).then_some(done.stdout)
}

fn page(command: Command, more: &Roff) -> Result<Vec<u8>, CommandFailure> {
    let mut page = Vec::new();
    Man::new(command)
        .render(&mut page)
        .and_then(|()| more.to_writer(&mut page))
        .map_err(|e| CommandFailure::of_io("write", "a manual page", &e))?;
    Ok(page)
}

fn write_page(folder: &Path, name: &str, page: &[u8]) -> Result<(), CommandFailure> {
    let path = folder.join(format!("{name}.1"));
    write_file(&path, page).map_err(|error| CommandFailure::of_destination(error, &path))
}

fn mechanisms() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["METHODS"]);
    roff.text([roman("Safest first. Until you run thalweg tune, the first suitable one is used.")]);
    for mechanism in MECHANISMS {
        let info = mechanism.info();
        roff.control("TP", []);
        roff.text([bold(info.name)]);
        roff.text([roman(info.summary)]);
        for (name, value) in facts_of(info) {
            roff.control("br", []);
            roff.text([roman(format!("{name}: {value}"))]);
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "0 success; 1 error, or data that differs; 2 wrong usage; 3 incomplete (use --resume to \
         continue), or a source changed during the copy; 4 not supported here; 128 plus the number \
         of the signal that interrupted the command.",
    )]);
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(
        "Variables set many long options; the page of each command lists them. Options on the \
         command line take precedence. THALWEG_PROFILE names the file of the measured profile, \
         THALWEG_STUDIES the directory of studies. A NO_COLOR that is not empty disables colour. \
         THALWEG_CPU=-avx512f,-avx2 hides CPU features from the copy kernels.",
    )]);
    roff
}

/// Returns the section about variables that set options of a command.
fn environment(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let variable = |arg: &Arg| {
        Some((arg.get_env()?.to_string_lossy().into_owned(), arg.get_long()?.to_owned()))
    };
    let variables: Vec<(String, String)> = command.get_arguments().filter_map(variable).collect();
    if !variables.is_empty() {
        roff.control("SH", ["ENVIRONMENT"]);
    }
    for (name, option) in variables {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(format!("sets --{option}"))]);
    }
    roff
}
