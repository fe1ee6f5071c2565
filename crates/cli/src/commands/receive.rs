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
    transfer_report::{self, Account, Clock, Counts, SoFar, Way, failure},
};
use crate::{
    args::{FsyncArgs, ProgressArgs, flag},
    exit::{Exit, Failure, transfer_error},
    interrupt::{self, is_interrupted},
    output::text::complain,
    profile::{Moves, Saved},
    progress::Meter,
    stdio,
};

/// Takes files, or a stream, from another process on this machine
///
/// Waits for `thalweg send --to NAME` of the same user. A file gets its name only when all of it is
/// there, and its checksum is the sender's where its bytes were sent; a file that the sender hands over
/// open is copied here as `thalweg copy` does it, unless --no-trust forbids that. A file that DST names
/// is replaced in that moment. Into a folder go any number of files under the names the sender gives
/// them: names of one part, and only with --force those that are there already. What goes wrong with
/// one does not keep back the others. Standard output and devices get the bytes as they come.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReceiveArgs {
    /// The name to listen at, or the path of a socket to make, with a slash in it
    #[arg(long, value_name = "NAME")]
    pub from: String,
    /// Where to put it: a file, a folder that is there, or `-` for standard output
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
    /// How long to wait for the other side
    #[arg(long, value_name = "TIME", default_value = "30s", env = "THALWEG_WAIT", hide_env = true)]
    #[arg(value_parser = parse_duration)]
    pub wait: Duration,
    /// Do not let the sender read or write this process's memory, and take no open file of it,
    /// although it is of the same user
    #[arg(long)]
    pub no_trust: bool,
    /// Do not look into the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
    /// Replace files in the folder that have the name of one that comes
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub durable: FsyncArgs,
    /// Say at the end also what was not used and why, and the processor time
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

Exit status: 0 all is there; 1 not all of it came, or a checksum differs; 2 usage; 4 no way between
these two works.";

impl Subcommand for ReceiveArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, _color: bool) -> Result<Exit, Failure> {
        let address = transfer_report::address(&self.from)?;
        let mut landings = Landings::of(self)?;
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
        let handed = receiver.recv_all(&mut landings, &mut |file, now| {
            moved = now;
            let mut meter = meter.borrow_mut();
            let meter = meter.get_or_insert_with(|| {
                // With several files, the sizes of later ones are unknown.
                let size = file.size.filter(|_| file.total == Some(1));
                let mut meter = Meter::new(self.shown, None, size);
                meter.listen();
                meter
            });
            meter.show(now);
        });
        if let Some(meter) = meter.borrow_mut().as_mut() {
            meter.finish(moved, true);
        }
        let missing = handed.as_ref().map_or(0, |handed| handed.missing);
        let so_far = SoFar { bytes: moved, ..landings.so_far };
        let mut counts = Counts::of(handed, &so_far, &self.from, Vec::new());
        let seen = counts.seen();
        let lacking = match (seen, missing) {
            (0, _) => Some("the sender had nothing to send".to_owned()),
            (_, 0) => None,
            _ => Some(format!(
                "{seen} of {} announced files came; the sender left the others out and says why",
                seen as u64 + missing
            )),
        };
        if let Some(lacking) = lacking {
            counts.end(Failure::new(Exit::Failed, format!("'{}': {lacking}", self.from)));
        }
        let account = Account {
            did: "received",
            shown: self.shown,
            verbose: self.verbose,
            on_stderr: self.destination.as_os_str() == "-",
            way: Way::of(&counts.from_open, counts.bytes, receiver.mechanism(), receiver.tuning()),
            notes: &landings.notes,
            choice: None,
            skipped: receiver.skipped(),
            counts: &counts,
            verified: counts.verified(),
            took: clock.read(),
        };
        let told = account.tell();
        counts.exit(seen).and_then(|exit| told.map(|()| exit))
    }
}

/// Waits for a sender of the same user. The clock starts when it has connected.
fn called(
    args: &ReceiveArgs,
    address: &Address,
    options: &Options,
) -> Result<(Receiver, Clock), Failure> {
    let listener = Listener::bind(address).map_err(|error| failure(&error, &args.from))?;
    let deadline = Instant::now().checked_add(args.wait);
    let refused = &mut |process, error: &Error| {
        let what = match error {
            _ if is_interrupted() => return,
            Error::Timeout => "said nothing".to_owned(),
            Error::PeerDied { .. } => "said nothing more".to_owned(),
            error => format!("was refused ({error})"),
        };
        complain(&format!(
            "{}: process {process} called and {what}; waiting for the next",
            args.from
        ));
    };
    let receiver = Receiver::accept(&listener, options, deadline, refused);
    match receiver {
        Ok(receiver) => Ok((receiver, Clock::start())),
        Err(_) if is_interrupted() => Err(failure(&Error::Timeout, &args.from)),
        Err(Error::Timeout) => {
            let message = format!(
                "'{}': nobody has called; start `thalweg send --to {}`, or wait longer with --wait",
                args.from, args.from
            );
            Err(Failure::new(Exit::Failed, message))
        }
        Err(error) => Err(failure(&error, &args.from)),
    }
}

/// A file that is being received.
struct UnderWay {
    destination: Destination,
    path: PathBuf,
    /// Bytes received so far.
    bytes: u64,
    /// The mechanism that moved them, if the sender handed over an open file.
    opened: Option<String>,
}

impl UnderWay {
    fn new(destination: Destination, path: PathBuf) -> Self {
        if let Some(left) = destination.left_alone() {
            complain(&format!("warning: {left}"));
        }
        Self { destination, path, bytes: 0, opened: None }
    }
}

/// Opens the destinations of the files, one after the other.
struct Landings<'a> {
    args: &'a ReceiveArgs,
    /// The destination, opened before any sender has connected, unless it is a directory.
    single: Option<UnderWay>,
    under_way: Option<UnderWay>,
    in_folder: bool,
    so_far: SoFar,
    /// The profile, loaded for the first open file.
    saved: Option<Saved>,
    /// Messages from the drivers of open files.
    notes: Vec<String>,
}

impl<'a> Landings<'a> {
    fn of(args: &'a ReceiveArgs) -> Result<Self, Failure> {
        let path = args.destination.clone();
        let in_folder = path.is_dir();
        let single =
            if in_folder { None } else { Some(UnderWay::new(stdio::destination(&path)?, path)) };
        Ok(Self {
            args,
            single,
            under_way: None,
            in_folder,
            so_far: SoFar::default(),
            saved: None,
            notes: Vec::new(),
        })
    }

    fn open(&mut self, file: &Announced) -> Result<UnderWay, String> {
        let folder = shown(&self.args.destination);
        if !self.in_folder {
            if file.total.is_some_and(|total| total > 1) {
                return Err(format!("'{folder}' is no folder, and several files are coming"));
            }
            let single = self.single.take();
            return single.ok_or_else(|| format!("'{folder}': one file is there already"));
        }
        let name = file.name.as_ref();
        let name =
            name.ok_or_else(|| format!("'{folder}' is a folder, and a stream has no name"))?;
        let path = self.args.destination.join(name);
        let opened = Destination::in_folder(&self.args.destination, name, self.args.force);
        match opened {
            Ok(destination) => Ok(UnderWay::new(destination, path)),
            Err(error) => Err(Failure::of_destination(error, &path).message),
        }
    }
}

impl Sink for Landings<'_> {
    fn begin(&mut self, file: &Announced) -> Result<(), String> {
        (self.so_far.total, self.so_far.size) = (file.total, file.size);
        self.under_way = Some(self.open(file)?);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(now) = &mut self.under_way else { return Ok(()) };
        let written = now.destination.write(bytes, &interrupt::check);
        written.map_err(|error| Failure::of_destination(error.into(), &now.path).message)?;
        now.bytes += bytes.len() as u64;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        let so_far = &mut self.so_far;
        if let Some(UnderWay { mut destination, path, bytes, opened }) = self.under_way.take() {
            inherit(&mut destination, InheritFrom::Anyone);
            let published = destination.publish_synced(self.args.durable.wanted());
            published.map_err(|error| Failure::of_destination(error, &path).message)?;
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
        self.under_way = None;
    }

    fn takes_open(&self) -> bool {
        let destination = self.under_way.as_ref().map(|under_way| &under_way.destination);
        matches!(destination, Some(Destination::Whole { .. }))
    }

    fn move_open(
        &mut self,
        from: BorrowedFd<'_>,
        size: u64,
        watch: &mut dyn Watch,
    ) -> Result<String, NotMoved> {
        let refused = |errno: Errno| NotMoved::Refused(format!("fstat: {}", errno_name(errno)));
        let Some(UnderWay { destination, path, bytes, opened }) = &mut self.under_way else {
            return Err(NotMoved::Refused("no file has begun".to_owned()));
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
        let saved = self.saved.get_or_insert_with(|| Saved::use_if_current(wanted, Moves::Streams));
        let facts = Facts { len: Some(size), ..Facts::of(&transfer) };
        let plan = Plan::make(&facts, &Request::default(), saved.current.as_ref());
        if let Some(reason) = plan.impossible {
            return Err(NotMoved::Refused(reason));
        }
        let outcome = Driver::default().run_untimed(&mut transfer, &plan, watch);
        if let Some(error) = outcome.error {
            let what = transfer_error(&error, "the sender's file", &path.to_string_lossy());
            return Err(NotMoved::Failed(what));
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
