//! The command line: one file or directory per command, with its arguments, its help and its implementation. To add a
//! command, add its file, its `mod` and its line in `commands!`.

use clap::{Args, Parser, Subcommand as Parsed};
use std::{env, ffi::OsString};

mod compare;
mod completions;
mod copy;
mod doctor;
mod fetch;
mod fleet;
mod helper;
mod list;
mod man;
mod manifest;
mod pipe;
mod plan;
mod receive;
#[cfg(feature = "lab")]
mod report;
mod send;
mod serve;
mod stream;
#[cfg(feature = "lab")]
mod study;
mod transfer_report;
#[cfg(feature = "lab")]
mod trial;
mod tune;
mod verify;
#[cfg(not(feature = "lab"))]
mod without_lab;

use crate::{
    args::Color,
    exit::{Exit, Failure},
    output::paint,
};
use copy::CopyArgs;
#[cfg(not(feature = "lab"))]
use without_lab::{report, study, trial};

/// A parsed command that can run.
pub trait Subcommand {
    /// Returns `true` if the command handles a closed pipe as an error (EPIPE). Otherwise SIGPIPE ends the process.
    fn outlives_pipes(&self) -> bool {
        false
    }

    /// Executes the command; `color` applies to text output.
    fn run(&self, color: bool) -> Result<Exit, Failure>;
}

/// Moves bytes on Linux by the way that is fastest on the machine it runs on.
///
/// Nothing is assumed about the machine: `tune` measures, `plan` explains, `doctor` looks.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// What to do
    #[command(subcommand)]
    command: Command,
}

// Arguments of every command.
#[derive(Args, Debug, Default)]
struct Common {
    /// When to colour what people read; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", env = "THALWEG_COLOR", hide_env = true)]
    #[arg(value_enum, default_value_t = Color::Auto)]
    color: Color,
}

macro_rules! commands {
    ($($(#[$how:meta])* $name:ident($args:ty),)*) => {
        /// The commands, in the order of the help.
        #[derive(Debug, Parsed)]
        pub enum Command {
            $($(#[$how])* $name(Box<$args>),)*
        }

        /// Returns the parser of one command, by its full name. It suffices for a valid command line, and is cheaper
        /// than building the options of all commands. If it fails, the caller uses the complete parser, which reports
        /// the error.
        pub fn parser_of(name: &str) -> Option<clap::Command> {
            // clap requires names with a static lifetime. This function is called once per process.
            let lasting: &str = name.to_owned().leak();
            let command = match name {
                $(_ if name == stringify!($name).to_ascii_lowercase() => {
                    <$args as Args>::augment_args(clap::Command::new(lasting))
                })*
                _ => return None,
            };
            Some(Common::augment_args(clap::Command::new("thalweg")).subcommand(command))
        }

        impl Command {
            fn chosen(&self) -> &dyn Subcommand {
                match self {
                    $(Self::$name(args) => &**args,)*
                }
            }
        }
    };
}

commands! {
    Copy(CopyArgs),
    Pipe(pipe::PipeArgs),
    Send(send::SendArgs),
    Receive(receive::ReceiveArgs),
    Serve(serve::ServeArgs),
    Fetch(fetch::FetchArgs),
    Verify(verify::VerifyArgs),
    Manifest(manifest::ManifestArgs),
    Fleet(fleet::FleetArgs),
    #[command(alias = "explain")]
    Plan(plan::PlanArgs),
    Tune(tune::TuneArgs),
    Doctor(doctor::DoctorArgs),
    Report(report::ReportArgs),
    List(list::ListArgs),
    Compare(compare::CompareArgs),
    Trial(trial::TrialArgs),
    Study(study::StudyArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Helper(helper::HelperArgs),
}

impl Cli {
    /// Parses a plain command line without clap, or returns `None`.
    pub fn of_plain(words: &[OsString]) -> Option<Self> {
        let [_, name, words @ ..] = words else { return None };
        if name != "copy" || env::var_os("THALWEG_COLOR").is_some() {
            return None;
        }
        let command = Command::Copy(Box::new(CopyArgs::of_plain(words)?));
        Some(Self { common: Common::default(), command })
    }

    /// Returns `true` if the command handles closed pipes itself; otherwise SIGPIPE ends the process.
    pub fn outlives_pipes(&self) -> bool {
        self.command.chosen().outlives_pipes()
    }

    pub fn run(&self) -> Result<Exit, Failure> {
        self.command.chosen().run(paint::wanted(self.common.color))
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy --tune big.iso /mnt/usb/    measure for three seconds, then move by the winner
  thalweg copy -a photos/ /backup/         a tree, with everything that can be kept
  thalweg pipe < dump.sql | gzip > d.gz    like pv: progress, larger pipes
  thalweg send --to job big.iso            to `thalweg receive --from job`, memory to memory
  thalweg serve photos/                    a folder over HTTP, by the ways that are fastest here
  thalweg fetch http://host/big.iso        whole or not at all; the same again goes on
  thalweg verify photos/ /backup/photos    every file, byte by byte
  thalweg manifest -o photos.b3 photos/    hashes that b3sum -c reads, to verify against later
  thalweg fleet /scratch/copy              how far a copy is that many machines work on
  thalweg plan big.iso /mnt/usb/           what would be used, and why
  thalweg report -o report.html            saved results of studies as one page
  thalweg tune --quick                     measure this machine once; plans rest on it from then on
  thalweg doctor                           what works on this machine, and what does not
  thalweg compare -- 'cp A B' 'thalweg copy A B'
                                           which one is faster, or that no difference shows
  thalweg study                            published experiments that can be run here

Exit status: 0 done; 1 failed, or data differ; 2 usage; 3 incomplete, and the same command with --resume
goes on, or the source changed while it was copied; 4 not supported here; 130 interrupted before all was
done (128 and the signal's number).
Many long options can be set in the environment, as THALWEG_LIMIT=10M: --help names them.";
