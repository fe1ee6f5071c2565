//! `thalweg send`: sends files or a stream to another process.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, openat};
use serde_json::json;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self as std_io, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Instant,
};
use thalweg_channel::{
    Address, Error, Link,
    bulk::{self, Item, Options, Pace, Sender, by_name},
};
use thalweg_core::{Tuning, cadence::RETRY_PAUSE, shown};
use thalweg_sys::{Errno, io};

use super::{
    Subcommand,
    transfer_report::{
        self, SoFar, TransferAccount, TransferClock, TransferCounts, UsedMethod, failure,
    },
};
use crate::{
    exit::{CommandFailure, Exit, INPUT},
    interrupt::{self, is_interrupted},
    output::{
        answer::{ChoiceEvidence, VerifiedCounts},
        text::AnswerStream,
    },
    profile::{Moves, SavedProfile},
    progress::ProgressMeter,
    stdio,
};

mod args;

pub use args::SendArgs;

/// From `linux/magic.h`. Files in sysfs report the size of a page and contain fewer bytes.
const SYSFS_MAGIC: u64 = 0x6265_6572;

struct SendSource {
    name: String,
    fd: OwnedFd,
    /// Remaining bytes, if the source is a regular file of known size.
    size: Option<u64>,
    /// `true` if this process opened the file; `false` for standard input.
    is_own: bool,
}

impl Subcommand for SendArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn json_stream(&self) -> Option<AnswerStream> {
        self.shown.json.then_some(AnswerStream::Output)
    }

    fn run(&self, _color: bool) -> Result<Exit, CommandFailure> {
        let mut options = options(self)?;
        let saved = SavedProfile::use_if_current(!self.no_profile, Moves::Buffers);
        options.measured = saved.current.clone().map(Arc::new);
        let address = transfer_report::address(&self.to)?;
        let names = names(self)?;
        // Opens a single file before connecting. If the file is missing, the receiver can still serve another sender.
        let mut first = match &self.files[..] {
            [only] => Some(SendSource::open(only)?),
            _ => None,
        };
        let expected = expected(self, first.as_ref());
        // A file smaller than the buffer is sent in one piece of its size.
        if let Some(size) = first.as_ref().and_then(|source| source.size) {
            options.size = Some(size.clamp(1, self.buffer));
        }
        interrupt::catch();
        let (mut sender, clock) = call(self, &address, &options)?;
        let mut meter = ProgressMeter::new(self.shown, None, expected);
        meter.listen();
        let mut moved = 0;
        // The failures of files that could not be opened.
        let mut missing = Vec::new();
        let items = self.files.iter().zip(names).filter_map(|(path, name)| {
            let source = first.take().map_or_else(|| SendSource::open(path), Ok);
            let source = source.map_err(|failure| missing.push(failure)).ok()?;
            Some(Item { name, size: source.size, file: self.handed_over(&source), source })
        });
        let mut pace = Pace {
            buffer: self.buffer as usize,
            total: Some(self.files.len() as u64),
            watch: &mut |now| {
                moved = now;
                meter.show(now);
            },
        };
        let handed = sender.send_all(items, &mut pace);
        meter.finish(moved, true);
        let so_far = SoFar { bytes: moved, ..SoFar::default() };
        let counts = TransferCounts::of(handed, &so_far, &self.to, missing);
        let way =
            UsedMethod::of(&counts.from_open, counts.bytes, sender.mechanism(), sender.tuning());
        let account = TransferAccount {
            did: "sent",
            shown: self.shown,
            verbose: self.verbose,
            on_stderr: false,
            choice: Some(choice(&saved, &sender)).filter(|_| way.is_between_processes),
            way,
            notes: &[],
            skipped: sender.skipped(),
            counts: &counts,
            verified: VerifiedCounts::default(),
            took: clock.read(),
        };
        let printed = account.print();
        sender.finish();
        counts.exit(self.files.len()).and_then(|exit| printed.map(|()| exit))
    }
}

impl SendArgs {
    /// Returns a descriptor of the file for the receiver, if this command may pass one.
    fn handed_over(&self, source: &SendSource) -> Option<OwnedFd> {
        // Standard input is shared with other processes, which may move its offset.
        let may = source.is_own && !self.as_bytes && self.method.is_none();
        let size = source.size.filter(|_| may);
        // If the descriptor cannot be duplicated (EMFILE), the sender sends the bytes instead.
        size.and_then(|_| source.fd.try_clone().ok())
    }
}

fn options(args: &SendArgs) -> Result<Options, CommandFailure> {
    let knobs = args.knob.iter();
    let tuning = knobs.fold(Tuning::default(), |tuning, (name, value)| tuning.with(name, *value));
    let arm = args.method.as_deref().and_then(by_name);
    if let Some(unknown) = arm.and_then(|arm| arm.info().unknown(&tuning).first().copied()) {
        let known = arm.map_or(&[][..], |arm| arm.info().knobs);
        let known: Vec<&str> = known.iter().map(|knob| knob.name).collect();
        let message = format!("--knob {unknown}: unknown; expected {}", known.join(", "));
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    if args.buffer == 0 || args.buffer > isize::MAX as u64 {
        let message = "--buffer: expected at least 1 byte and less than 8 EiB";
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    Ok(Options {
        only: args.method.clone(),
        without: args.no_method.clone(),
        tuning,
        will_loan: true,
        size: Some(args.buffer),
        stop: Some(is_interrupted),
        ..Options::default()
    })
}

/// Returns the evidence for the mechanism in use.
fn choice(saved: &SavedProfile, sender: &Sender) -> ChoiceEvidence {
    let choice = sender.choice();
    let why = match &choice {
        bulk::Choice::Unmeasured => format!("{choice}; profile: {}", saved.describe()),
        measured => measured.to_string(),
    };
    ChoiceEvidence { why, evidence: choice.evidence().cloned(), profile: json!(saved.status()) }
}

/// Returns the file names for the receiver; standard input has none.
fn names(args: &SendArgs) -> Result<Vec<Option<OsString>>, CommandFailure> {
    let usage = |message: String| Err(CommandFailure::new(Exit::Usage, message));
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for path in &args.files {
        let Some(name) = path.file_name() else {
            return usage(format!("'{}': does not end with a file name", shown(path)));
        };
        if path.as_os_str() == "-" {
            if args.files.len() > 1 {
                return usage(format!("{INPUT} cannot be sent together with files"));
            }
            names.push(None);
            continue;
        }
        if !seen.insert(name) {
            let name = shown(name);
            return usage(format!("'{name}': two files have this name; send them separately"));
        }
        names.push(Some(name.to_owned()));
    }
    Ok(names)
}

/// Returns the total number of bytes, if known beforehand.
fn expected(args: &SendArgs, first: Option<&SendSource>) -> Option<u64> {
    if let Some(first) = first {
        return first.size;
    }
    let sizes = args.files.iter().map(|path| {
        let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        meta.map(|meta| meta.len())
    });
    sizes.sum()
}

/// Connects repeatedly until a receiver accepts this sender. A receiver that has accepted another sender closes all
/// other connections. Their senders then wait for the next receiver, up to the deadline.
fn call(
    args: &SendArgs,
    address: &Address,
    options: &Options,
) -> Result<(Sender, TransferClock), CommandFailure> {
    let deadline = Instant::now().checked_add(args.wait);
    loop {
        let link = connect(args, address, deadline)?;
        let clock = TransferClock::start();
        match Sender::over(link, options.clone()) {
            Ok(sender) => return Ok((sender, clock)),
            Err(Error::PeerDied { .. } | Error::Closed { .. })
                if !is_interrupted()
                    && deadline.is_none_or(|deadline| Instant::now() < deadline) =>
            {
                std::thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(failure(&error, &args.to)),
        }
    }
}

/// Retries until a process listens at the address.
fn connect(
    args: &SendArgs,
    address: &Address,
    deadline: Option<Instant>,
) -> Result<Link, CommandFailure> {
    loop {
        match Link::connect(address) {
            Err(error) if error.is_absent() => {
                if is_interrupted() {
                    return Err(failure(&error, &args.to));
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let message = format!("'{}': no receiver", args.to);
                    let hint = format!("start `thalweg receive --from {}`, or use --wait", args.to);
                    return Err(CommandFailure::new(Exit::Failed, message).hint(hint));
                }
                std::thread::sleep(RETRY_PAUSE);
            }
            answer => return answer.map_err(|error| failure(&error, &args.to)),
        }
    }
}

impl SendSource {
    fn open(path: &Path) -> Result<Self, CommandFailure> {
        let (name, fd) = if path.as_os_str() == "-" {
            stdio::expect_open(0, INPUT)?;
            let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
            (INPUT.to_owned(), fd.map_err(|e| CommandFailure::of_call("fcntl", INPUT, e))?)
        } else {
            let name = shown(path).to_string();
            let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let fd = fd.map_err(|e| CommandFailure::of_call("open", &name, e))?;
            (name, fd)
        };
        let stat = fstat(&fd).map_err(|e| CommandFailure::of_call("fstat", &name, e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let message = format!("'{name}': is a directory");
            return Err(CommandFailure::new(Exit::Usage, message)
                .hint("send the files of the directory, or an archive of them"));
        }
        let here = rustix::fs::tell(&fd).unwrap_or(0);
        // Files in procfs report a size of 0 although they contain bytes.
        let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0);
        let is_sysfs = fstatfs(&fd).is_ok_and(|system| system.f_type as u64 == SYSFS_MAGIC);
        let size = size.filter(|_| kind == FileType::RegularFile && !is_sysfs);
        let is_own = path.as_os_str() != "-";
        Ok(Self { name, fd, size: size.map(|size| size.saturating_sub(here)), is_own })
    }

    fn failed(&self, call: &str, errno: Errno) -> std_io::Error {
        std_io::Error::other(CommandFailure::of_call(call, &self.name, errno).message)
    }
}

impl Read for SendSource {
    /// Waits until at least one byte is available, and returns the available bytes.
    fn read(&mut self, into: &mut [u8]) -> std_io::Result<usize> {
        loop {
            match io::read(self.fd.as_fd(), into) {
                Err(Errno::AGAIN) => match io::wait_readable(self.fd.as_fd(), None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => return Err(Errno::INTR.into()),
                    Err(errno) => return Err(self.failed("poll", errno)),
                },
                Err(Errno::INTR) => return Err(Errno::INTR.into()),
                answer => return answer.map_err(|errno| self.failed("read", errno)),
            }
        }
    }
}
