//! `thalweg receive`: receives files from another process into a file, a directory or a stream.

use clap::Args;
use std::{
    cell::RefCell,
    os::fd::BorrowedFd,
    path::PathBuf,
    time::{Duration, Instant},
};
use thalweg_channel::{
    Address, Error, Listener,
    bulk::{self, Announced, FromOpen, NotMoved, Options, Receiver, Sink},
};
use thalweg_core::{
    Driver, End, Facts, Guarantees, Plan, Request, Source, Transfer, Watch,
    atomic_file::Destination, error::errno_name, mechanisms::LAST_RESORT, quantity::parse_duration,
    shown,
};
use thalweg_sys::Errno;
use thalweg_tree::install::{InheritFrom, inherit};

use super::{
    Subcommand, stream,
    transfer_report::{
        self, SoFar, TransferAccount, TransferClock, TransferCounts, UsedMethod, failure,
    },
};
use crate::{
    args::{FsyncArgs, ProgressArgs, flag},
    exit::{CommandFailure, Exit, transfer_failure},
    interrupt::{self, is_interrupted},
    output::text::complain,
    profile::{Moves, SavedProfile},
    progress::ProgressMeter,
    stdio,
};

/// Receive files or a stream from another process on this machine
///
/// Waits for `thalweg send --to NAME` of the same user. A file appears under its name only when it is complete and, if
/// its data was sent, when its checksum is right. It then replaces an existing file that DST names. A directory receives
/// any number of files under the names that the sender gives; existing files are replaced only with --force. If one file
/// fails, the others continue. Standard output and devices receive the data immediately.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReceiveArgs {
    /// Name to listen at, or the path of a new socket (with a slash)
    #[arg(long, value_name = "NAME")]
    pub from: String,
    /// Destination: a file, an existing directory, or `-` for standard output
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// Wait this long for the sender
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Accept no open files from the sender, and give it no access to memory of this process
    #[arg(long)]
    pub no_trust: bool,
    /// Do not use the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
    /// Replace existing files in the directory
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub durable: FsyncArgs,
    /// Also print the CPU time, and methods that were not used
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg receive --from job copy.img
  thalweg receive --from job copies/
  thalweg receive --from job - | gzip > copy.gz
  thalweg receive --from job --wait 1h copy.img
  thalweg receive --from job --json copy.img | jq .mechanism

Exit status:
  0  everything was received
  1  an error, or a checksum that differs
  2  wrong usage
  4  no method works between the two processes";

impl Subcommand for ReceiveArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let address = transfer_report::address(&self.from)?;
        let mut receiving = Receiving::of(self)?;
        interrupt::catch();
        let options = Options {
            trust: !self.no_trust,
            stop: Some(is_interrupted),
            // A single buffer is reused for all data.
            destination: bulk::Destination::Resident,
            ..Options::default()
        };
        let (mut receiver, clock) = called(self, &address, &options)?;
        let meter = RefCell::new(None);
        let mut moved = 0;
        let handed = receiver.recv_all(&mut receiving, &mut |file, now| {
            moved = now;
            let mut meter = meter.borrow_mut();
            let meter = meter.get_or_insert_with(|| {
                // With several files, the sizes of later ones are unknown.
                let size = file.size.filter(|_| file.total == Some(1));
                let mut meter = ProgressMeter::new(self.shown, None, size);
                meter.listen();
                meter
            });
            meter.show(now);
        });
        if let Some(meter) = meter.borrow_mut().as_mut() {
            meter.finish(moved, true);
        }
        let missing = handed.as_ref().map_or(0, |handed| handed.missing);
        let so_far = SoFar { bytes: moved, ..receiving.so_far };
        let mut counts = TransferCounts::of(handed, &so_far, &self.from, Vec::new());
        let seen = counts.seen();
        let lacking = match (seen, missing) {
            (0, _) => Some("the sender sent nothing".to_owned()),
            (_, 0) => None,
            _ => Some(format!(
                "received {seen} of {} announced files; see the messages of the sender",
                seen as u64 + missing
            )),
        };
        if let Some(lacking) = lacking {
            counts.end(CommandFailure::new(Exit::Failed, format!("'{}': {lacking}", self.from)));
        }
        let account = TransferAccount {
            did: "received",
            shown: self.shown,
            verbose: self.verbose,
            on_stderr: self.destination.as_os_str() == "-",
            way: UsedMethod::of(
                &counts.from_open,
                counts.bytes,
                receiver.mechanism(),
                receiver.tuning(),
            ),
            notes: &receiving.notes,
            choice: None,
            skipped: receiver.skipped(),
            counts: &counts,
            verified: counts.verified(),
            took: clock.read(),
        };
        let printed = account.print();
        counts.exit(seen).and_then(|exit| printed.map(|()| exit))
    }
}

/// Waits for a sender of the same user. The clock starts when it has connected.
fn called(
    args: &ReceiveArgs,
    address: &Address,
    options: &Options,
) -> Result<(Receiver, TransferClock), CommandFailure> {
    let listener = Listener::bind(address).map_err(|error| failure(&error, &args.from))?;
    let deadline = Instant::now().checked_add(args.wait);
    let refused = &mut |process, error: &Error| {
        let what = match error {
            _ if is_interrupted() => return,
            Error::Timeout => "sent nothing".to_owned(),
            Error::PeerDied { .. } => "ended".to_owned(),
            error => format!("was refused: {error}"),
        };
        complain(&format!("'{}': process {process} {what}; waiting for another sender", args.from));
    };
    let receiver = Receiver::accept(&listener, options, deadline, refused);
    match receiver {
        Ok(receiver) => Ok((receiver, TransferClock::start())),
        Err(_) if is_interrupted() => Err(failure(&Error::Timeout, &args.from)),
        Err(Error::Timeout) => {
            let message = format!("'{}': no sender", args.from);
            let hint = format!("start `thalweg send --to {}`, or use --wait", args.from);
            Err(CommandFailure::new(Exit::Failed, message).hint(hint))
        }
        Err(error) => Err(failure(&error, &args.from)),
    }
}

/// A file that is being received.
struct Incoming {
    destination: Destination,
    path: PathBuf,
    /// Bytes received so far.
    bytes: u64,
    /// The mechanism that moved them, if the sender handed over an open file.
    opened: Option<String>,
}

impl Incoming {
    fn new(destination: Destination, path: PathBuf) -> Self {
        if let Some(left) = destination.left_alone() {
            complain(&format!("warning: {left}"));
        }
        Self { destination, path, bytes: 0, opened: None }
    }
}

/// Opens the destinations of the files, one after the other.
struct Receiving<'a> {
    args: &'a ReceiveArgs,
    /// The destination, opened before any sender has connected, unless it is a directory.
    single: Option<Incoming>,
    current: Option<Incoming>,
    in_folder: bool,
    so_far: SoFar,
    /// The profile, loaded for the first open file.
    saved: Option<SavedProfile>,
    /// Messages from the drivers of open files.
    notes: Vec<String>,
}

impl<'a> Receiving<'a> {
    fn of(args: &'a ReceiveArgs) -> Result<Self, CommandFailure> {
        let path = args.destination.clone();
        let in_folder = path.is_dir();
        let single =
            if in_folder { None } else { Some(Incoming::new(stdio::destination(&path)?, path)) };
        Ok(Self {
            args,
            single,
            current: None,
            in_folder,
            so_far: SoFar::default(),
            saved: None,
            notes: Vec::new(),
        })
    }

    fn open(&mut self, file: &Announced) -> Result<Incoming, String> {
        let folder = shown(&self.args.destination);
        if !self.in_folder {
            if file.total.is_some_and(|total| total > 1) {
                return Err(format!("'{folder}': not a directory, but several files are sent"));
            }
            let single = self.single.take();
            return single.ok_or_else(|| format!("'{folder}': a file was already received"));
        }
        let name = file.name.as_ref();
        let name =
            name.ok_or_else(|| format!("'{folder}': is a directory, but a stream has no name"))?;
        let path = self.args.destination.join(name);
        let opened = Destination::in_folder(&self.args.destination, name, self.args.force);
        match opened {
            Ok(destination) => Ok(Incoming::new(destination, path)),
            Err(error) => Err(CommandFailure::of_destination(error, &path).one_line()),
        }
    }
}

impl Sink for Receiving<'_> {
    fn begin(&mut self, file: &Announced) -> Result<(), String> {
        (self.so_far.total, self.so_far.size) = (file.total, file.size);
        self.current = Some(self.open(file)?);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(now) = &mut self.current else { return Ok(()) };
        let written = now.destination.write(bytes, &interrupt::check);
        written
            .map_err(|error| CommandFailure::of_destination(error.into(), &now.path).one_line())?;
        now.bytes += bytes.len() as u64;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        let so_far = &mut self.so_far;
        if let Some(Incoming { mut destination, path, bytes, opened }) = self.current.take() {
            inherit(&mut destination, InheritFrom::Anyone);
            let published = destination.publish_synced(self.args.durable.wanted());
            published.map_err(|error| CommandFailure::of_destination(error, &path).one_line())?;
            so_far.whole += bytes;
            if let Some(by) = opened {
                let FromOpen { files, bytes: before, .. } = so_far.from_open;
                so_far.from_open =
                    FromOpen { files: files + 1, bytes: before + bytes, by: Some(by) };
            }
        }
        so_far.files += 1;
        Ok(())
    }

    fn abandon(&mut self) {
        self.current = None;
    }

    fn takes_open(&self) -> bool {
        let destination = self.current.as_ref().map(|current| &current.destination);
        matches!(destination, Some(Destination::Whole { .. }))
    }

    fn move_open(
        &mut self,
        from: BorrowedFd<'_>,
        size: u64,
        watch: &mut dyn Watch,
    ) -> Result<String, NotMoved> {
        let refused = |errno: Errno| NotMoved::Refused(format!("fstat: {}", errno_name(errno)));
        let Some(Incoming { destination, path, bytes, opened }) = &mut self.current else {
            return Err(NotMoved::Refused("no file was started".to_owned()));
        };
        let source = End::from_start(from).map_err(refused)?;
        let sink = End::from_start(destination.fd()).map_err(refused)?;
        let mut transfer = Transfer {
            source: Source::Fd(source),
            sink: thalweg_core::Sink::Fd(sink),
            len: Some(size),
            needs: Guarantees::COPIED,
        };
        let wanted = !self.args.no_profile;
        let saved =
            self.saved.get_or_insert_with(|| SavedProfile::use_if_current(wanted, Moves::Streams));
        let facts = Facts { len: Some(size), ..Facts::of(&transfer) };
        let plan = Plan::make(&facts, &Request::default(), saved.current.as_ref());
        if let Some(reason) = plan.impossible {
            return Err(NotMoved::Refused(reason));
        }
        let outcome = Driver::default().run_untimed(&mut transfer, &plan, watch);
        if let Some(error) = outcome.error {
            let failure = transfer_failure(&error, "the sender's file", &path.to_string_lossy());
            return Err(NotMoved::Failed(failure.one_line()));
        }
        if outcome.stopped {
            return Err(NotMoved::Stopped);
        }
        let report = outcome.report;
        if report.bytes != size {
            let why = format!("the source changed: it ended after {} bytes", report.bytes);
            return Err(NotMoved::Failed(why));
        }
        self.notes.extend(stream::events(&report));
        let by = report.main().map_or(LAST_RESORT.info().name, |share| share.mechanism).to_owned();
        (*bytes, *opened) = (size, Some(by.clone()));
        Ok(by)
    }
}
