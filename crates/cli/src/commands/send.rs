//! `thalweg send`: a file or a stream into another process's memory.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};
use thalweg_channel::{
    Error, Link,
    bulk::{Loan, Options, Sender, by_name},
};
use thalweg_core::Tuning;
use thalweg_sys::{Errno, io, signal};
use xxhash_rust::xxh3::Xxh3;

use super::handover::{
    self, Account, Clock, Head, Tail, VERSION, failure, is_absent, is_interrupted,
};
use crate::{
    args::SendArgs,
    exit::{Exit, Failure},
    patience,
    progress::Meter,
};

const INPUT: &str = "standard input";
/// How often to look whether somebody listens by now.
const AGAIN: Duration = Duration::from_millis(20);

/// What is sent.
struct Source {
    name: String,
    fd: OwnedFd,
    /// Bytes to come, if it is a file.
    size: Option<u64>,
}

/// Sends it.
pub fn run(args: &SendArgs) -> Result<Exit, Failure> {
    let options = options(args)?;
    let address = handover::address(&args.to)?;
    let source = Source::open(args)?;
    patience::catch_interrupts();
    let link = connect(args, &address)?;
    let clock = Clock::start();
    let mut sender = Sender::over(link, options).map_err(|error| failure(&error, &args.to, 0))?;
    let mut meter = Meter::new(args.shown, None, source.size);
    let mut moved = 0;
    let outcome = send(&mut sender, &source, args, (&mut meter, &mut moved));
    meter.finish(moved, true);
    let error = outcome.as_ref().err().map(|failure| failure.message.clone());
    let account = Account {
        shown: args.shown,
        verbose: args.verbose,
        on_stderr: false,
        arm: sender.arm(),
        tuning: sender.tuning(),
        skipped: sender.skipped(),
        bytes: moved,
        verified: None,
        error: error.as_deref(),
        took: clock.read(),
    };
    let told = account.tell();
    outcome.and(told)?;
    sender.finish();
    Ok(Exit::Done)
}

fn options(args: &SendArgs) -> Result<Options, Failure> {
    let knobs = args.knob.iter();
    let tuning = knobs.fold(Tuning::default(), |tuning, (name, value)| tuning.with(name, *value));
    let arm = args.method.as_deref().and_then(by_name);
    if let Some(unknown) = arm.and_then(|arm| arm.info().unknown(&tuning).first().copied()) {
        let known = arm.map_or(&[][..], |arm| arm.info().knobs);
        let known: Vec<&str> = known.iter().map(|knob| knob.name).collect();
        let message = format!("--knob {unknown}: there are only {}", known.join(", "));
        return Err(Failure::new(Exit::Usage, message));
    }
    if args.buffer.0 == 0 || args.buffer.0 > isize::MAX as u64 {
        return Err(Failure::new(Exit::Usage, "--buffer: that is no size of a buffer"));
    }
    Ok(Options {
        only: args.method.clone(),
        without: args.no_method.clone(),
        tuning,
        will_loan: true,
        size: Some(args.buffer.0),
        stop: Some(is_interrupted),
        ..Options::default()
    })
}

/// Calls until somebody listens.
fn connect(args: &SendArgs, address: &thalweg_channel::Address) -> Result<Link, Failure> {
    let deadline = Instant::now().checked_add(args.wait.0);
    loop {
        match Link::connect(address) {
            Err(error) if is_absent(&error) => {
                if is_interrupted() {
                    return Err(failure(&error, &args.to, 0));
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    let message = format!(
                        "{}: nobody listens there; start `thalweg receive --from {}`, or wait \
                         longer with --wait",
                        args.to, args.to
                    );
                    return Err(Failure::new(Exit::Partial, message));
                }
                std::thread::sleep(AGAIN);
            }
            answer => return answer.map_err(|error| failure(&error, &args.to, 0)),
        }
    }
}

impl Source {
    fn open(args: &SendArgs) -> Result<Self, Failure> {
        let (name, fd) = if args.file.as_os_str() == "-" {
            let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
            (INPUT.to_owned(), fd.map_err(|e| Failure::of_call("fcntl", INPUT, e))?)
        } else {
            let name = args.file.display().to_string();
            let fd = openat(CWD, &args.file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let fd = fd.map_err(|e| Failure::of_call("open", &name, e))?;
            (name, fd)
        };
        let stat = fstat(&fd).map_err(|e| Failure::of_call("fstat", &name, e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let message = format!("{name}: a directory; send its files, or a tar of it");
            return Err(Failure::new(Exit::Usage, message));
        }
        let here = rustix::fs::tell(&fd).unwrap_or(0);
        // Files of /proc have a size of 0 and bytes all the same.
        let size = u64::try_from(stat.st_size).ok().filter(|size| *size > 0);
        let size = size.filter(|_| kind == FileType::RegularFile);
        Ok(Self { name, fd, size: size.map(|size| size.saturating_sub(here)) })
    }

    /// Fills the buffer from a file; from a stream takes what there is.
    fn read(&self, into: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < into.len() {
            match io::read(self.fd.as_fd(), &mut into[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) if is_interrupted() => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    io::wait_readable(self.fd.as_fd(), None)
                        .or_else(|e| if e == Errno::INTR { Ok(false) } else { Err(e) })
                        .map_err(|e| Failure::of_call("poll", &self.name, e))?;
                    if is_interrupted() {
                        break;
                    }
                }
                Err(errno) => return Err(Failure::of_call("read", &self.name, errno)),
            }
            if self.size.is_none() && filled > 0 {
                break;
            }
        }
        Ok(filled)
    }
}

fn send(
    sender: &mut Sender,
    source: &Source,
    args: &SendArgs,
    (meter, moved): (&mut Meter, &mut u64),
) -> Result<(), Failure> {
    let lost = |error: &Error, moved: u64| failure(error, &args.to, moved);
    let size = source.size.map_or(args.buffer.0, |size| size.clamp(1, args.buffer.0));
    let head = Head { thalweg: VERSION, size: source.size, buffer: size };
    sender.send_from(&words(&head)).map_err(|e| lost(&e, 0))?;
    let mut hasher = Xxh3::new();
    let mut loan: Option<Loan> = None;
    loop {
        let mut own = match loan.take() {
            Some(own) => own,
            None => sender.alloc(size as usize).map_err(|e| lost(&e, *moved))?,
        };
        let count = source.read(&mut own)?;
        if let Some(signal) = signal::which() {
            let message = format!("{}: interrupted after {moved} bytes", args.to);
            return Err(Failure::new(Exit::Signal(signal), message));
        }
        if count == 0 {
            break;
        }
        hasher.update(&own[..count]);
        if count == own.len() {
            loan = sender.send_loan(own).map_err(|e| lost(&e, *moved))?;
        } else {
            sender.send_from(&own[..count]).map_err(|e| lost(&e, *moved))?;
            loan = Some(own);
        }
        *moved += count as u64;
        meter.show(*moved);
    }
    sender.send_from(&[]).map_err(|e| lost(&e, *moved))?;
    sender.send_from(&words(&Tail::of(*moved, &hasher))).map_err(|e| lost(&e, *moved))
}

fn words(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
