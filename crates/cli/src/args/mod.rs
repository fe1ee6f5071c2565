//! The command line: one file per command's arguments, no behaviour.

use clap::{Parser, Subcommand, ValueEnum, builder::FalseyValueParser};

mod abbreviated;
mod choice;
mod chosen;
mod compare;
mod copy;
mod doctor;
mod environment;
mod generate;
mod helper;
mod kept;
mod list;
mod manifest;
mod metric;
mod pipe;
mod plan;
mod progress;
mod receive;
mod report;
mod send;
mod study;
mod trial;
mod tune;
mod verify;

pub use abbreviated::{Abbreviated, find};
pub use choice::{Choice, Preference};
pub use chosen::Chosen;
pub use compare::{CompareArgs, Export, FailIf, Form, Scan};
pub use copy::{Backup, CopyArgs, Fsync, Reflink, Sparse, Update, Verify};
pub use doctor::DoctorArgs;
pub use environment::shown_in_help;
pub use generate::{CompletionsArgs, ManArgs};
pub use helper::HelperArgs;
pub use kept::Kept;
pub use list::ListArgs;
pub use manifest::{HashName, ManifestArgs};
pub use metric::{MetricArgs, words};
pub use pipe::PipeArgs;
pub use plan::PlanArgs;
pub use progress::{ProgressArgs, When};
pub use receive::ReceiveArgs;
pub use report::ReportArgs;
pub use send::SendArgs;
pub use study::StudyArgs;
pub use trial::TrialArgs;
pub use tune::TuneArgs;
pub use verify::VerifyArgs;

/// Moves bytes on Linux by the way that is fastest on the machine it runs on.
///
/// Nothing is assumed about the machine: `tune` measures, `plan` explains, `doctor` looks.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// When to colour what people read; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", env = "THALWEG_COLOR", hide_env = true)]
    #[arg(value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Copy(Box<CopyArgs>),
    Pipe(PipeArgs),
    Send(SendArgs),
    Receive(ReceiveArgs),
    Verify(Box<VerifyArgs>),
    Manifest(ManifestArgs),
    #[command(alias = "explain")]
    Plan(PlanArgs),
    Tune(TuneArgs),
    Doctor(DoctorArgs),
    Report(ReportArgs),
    List(ListArgs),
    Compare(Box<CompareArgs>),
    Trial(Box<TrialArgs>),
    Study(Box<StudyArgs>),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true)]
    Helper(HelperArgs),
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// `1`, `yes`, `true` in an environment variable set a flag; `0`, `no`, `false` and nothing do not.
fn flag() -> FalseyValueParser {
    FalseyValueParser::new()
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy --tune big.iso /mnt/usb/    measure for three seconds, then move by the winner
  thalweg copy -a photos/ /backup/         a tree, with everything that can be kept
  thalweg pipe < dump.sql | gzip > d.gz    like pv: progress, larger pipes
  thalweg send --to job big.iso            to `thalweg receive --from job`, memory to memory
  thalweg verify photos/ /backup/photos    every file, byte by byte
  thalweg manifest -o photos.b3 photos/    hashes that b3sum -c reads, to verify against later
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
