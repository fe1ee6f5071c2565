//! The command line: one file or directory per command, with its arguments, its help and its implementation. To add a
//! command, add its file, its `mod` and its line in `commands!`.

use clap::{Args, Parser, Subcommand as Parsed};
use std::ffi::OsString;
use thalweg_sys::environ;

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
mod moves;
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
mod sync;
mod transfer_report;
#[cfg(feature = "lab")]
mod trial;
mod tune;
mod verify;
#[cfg(not(feature = "lab"))]
mod without_lab;

use crate::{
    args::Color,
    exit::{CommandFailure, Exit},
    output::{
        answer::JsonAnswer,
        paint,
        text::{self, AnswerStream},
    },
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

    /// Returns `true` if the command may print text in colour.
    fn uses_color(&self) -> bool {
        true
    }

    /// Returns the stream for the JSON object of a command that fails before it has results. `None` without `--json`, and
    /// for commands that then print no object.
    fn json_stream(&self) -> Option<AnswerStream> {
        None
    }

    /// Returns this object in one line.
    fn failed_answer(&self, error: &str) -> String {
        JsonAnswer::failed(error.to_owned()).line()
    }

    /// Executes the command; `color` applies to text output.
    fn run(&self, color: bool) -> Result<Exit, CommandFailure>;
}

/// Copy, pipe, share and compare data on Linux with the fastest method for this machine
///
/// `tune` measures the methods, `plan` explains the choice, and `doctor` checks what works here.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// The command to run
    #[command(subcommand)]
    command: Command,
}

// Arguments of every command.
#[derive(Args, Debug, Default)]
struct Common {
    /// When to colour the output
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

        /// Returns the parser of one command, by its full name, or of `--version`. It parses every valid command line
        /// of this command, and is cheaper than the parser of all commands. After an error, the caller parses again
        /// with the parser of all commands, which reports the error. A request for the version is not an error.
        pub fn parser_of(name: &str) -> Option<clap::Command> {
            let root = Common::augment_args(clap::Command::new("thalweg"));
            if name == "--version" || name == "-V" {
                return Some(root.version(env!("CARGO_PKG_VERSION")));
            }
            // clap requires names with a static lifetime. This function is called once per process.
            let lasting: &str = name.to_owned().leak();
            let command = match name {
                $(_ if name == stringify!($name).to_ascii_lowercase() => {
                    <$args as Args>::augment_args(clap::Command::new(lasting))
                })*
                _ => return None,
            };
            Some(root.subcommand(command))
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
    Sync(sync::SyncArgs),
    Move(moves::MoveArgs),
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
        let command = match name.to_str()? {
            "copy" => Command::Copy(Box::new(CopyArgs::of_plain(words)?)),
            "pipe" if words.is_empty() => Command::Pipe(Box::default()),
            _ => return None,
        };
        // Environment variables may set options, and only clap reads them.
        let is_plain = !environ::has_name_with("THALWEG_");
        is_plain.then(|| Self { common: Common::default(), command })
    }

    /// Returns `true` if the command handles closed pipes itself; otherwise SIGPIPE ends the process.
    pub fn outlives_pipes(&self) -> bool {
        self.command.chosen().outlives_pipes()
    }

    pub fn run(&self) -> Result<Exit, CommandFailure> {
        let command = self.command.chosen();
        command.run(command.uses_color() && paint::wanted(self.common.color))
    }

    /// Prints the JSON object of a command that failed, unless it has printed one.
    pub fn answer_failed(&self, failure: &CommandFailure) {
        let command = self.command.chosen();
        let stream = command.json_stream().filter(|_| !failure.message.is_empty());
        if let Some(stream) = stream.filter(|_| !text::has_answered()) {
            text::keep(text::answer(&command.failed_answer(&failure.one_line()), stream));
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg copy -a photos/ /backup/         copy a directory with all attributes
  thalweg sync --delete photos /backup/p   make a backup equal to a directory
  thalweg copy --tune big.iso /mnt/usb/    measure, then use the fastest method
  thalweg pipe < dump.sql | gzip > d.gz    like pv: progress, and larger pipes
  thalweg send --to job big.iso            to `thalweg receive --from job`
  thalweg serve photos/                    share a directory over HTTP
  thalweg fetch http://host/big.iso        download; repeat it to continue
  thalweg verify photos/ /backup/photos    compare every file
  thalweg manifest -o photos.b3 photos/    write hashes, to verify later
  thalweg fleet /scratch/copy              show the progress of a sharded copy
  thalweg plan big.iso /mnt/usb/           show the chosen method, and why
  thalweg tune --quick                     measure this machine once
  thalweg doctor                           check what works on this machine
  thalweg compare -- 'cp A B' 'thalweg copy A B'
  thalweg study                            published experiments
  thalweg report -o report.html            results of studies as one page

Exit status:
  0    success
  1    error, or data that differs
  2    wrong usage
  3    incomplete (use --resume to continue), or a source changed during the copy
  4    not supported here
  128  plus the number of the signal that interrupted the command

Many options can be set in the environment, such as THALWEG_LIMIT=10M.";
