//! What `send` and `receive` say to each other in the buffers of a bulk transfer: a head, the data, an
//! empty buffer, a tail. Also the errors and the account they share.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use thalweg_channel::{
    Address, Error,
    bulk::{Info, Skipped},
};
use thalweg_core::{Tuning, error::errno_name};
use thalweg_sys::{Errno, signal, usage::Usage};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    args::ProgressArgs,
    exit::{Exit, Failure},
    output::{
        answer::{Answer, SCHEMA, Unavailable},
        text::{note, print},
        units,
    },
};

/// The version of head and tail.
pub const VERSION: u32 = 1;

/// The first buffer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`VERSION`].
    pub thalweg: u32,
    /// Bytes to come, if that is known.
    pub size: Option<u64>,
    /// Bytes of the longest buffer of data.
    pub buffer: u64,
}

/// The last buffer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Bytes that came.
    pub bytes: u64,
    /// Their XXH3, 128 bits, in hexadecimal.
    pub xxh3: String,
}

impl Tail {
    /// Of everything that went through the hasher.
    pub fn of(bytes: u64, hasher: &Xxh3) -> Self {
        Self { bytes, xxh3: format!("{:032x}", hasher.digest128()) }
    }
}

/// The address a person named.
pub fn address(name: &str) -> Result<Address, Failure> {
    Address::parse(name).map_err(|error| match error {
        Error::NotPermitted { why } => Failure::new(Exit::Usage, why),
        other => failure(&other, name, 0),
    })
}

/// Whether to stop: an interrupt came.
pub fn is_interrupted() -> bool {
    signal::interrupted()
}

/// What went wrong between the two, and how far they were.
pub fn failure(error: &Error, name: &str, moved: u64) -> Failure {
    if let Some(signal) = signal::which() {
        let message = format!("{name}: interrupted after {}", units::exact(moved));
        return Failure::new(Exit::Signal(signal), message);
    }
    let how_far = units::exact(moved);
    match error {
        Error::PeerDied { .. } | Error::Closed { .. } => Failure::new(
            Exit::Partial,
            format!("{name}: the other side is gone after {how_far}; start both again"),
        ),
        Error::NotPermitted { why } => Failure::new(Exit::Unsupported, format!("{name}: {why}")),
        Error::System { call, errno } => Failure::new(
            Exit::Partial,
            format!("{name}: {call}: {} after {how_far}", errno_name(*errno)),
        ),
        other => Failure::new(Exit::Partial, format!("{name}: {other} (after {how_far})")),
    }
}

/// Whether nobody listens yet.
pub fn is_absent(error: &Error) -> bool {
    matches!(error, Error::System { errno: Errno::NOENT | Errno::CONNREFUSED, .. })
}

/// Time and processor time since the start.
pub struct Clock {
    began: Instant,
    usage: Usage,
}

impl Clock {
    /// From now on.
    pub fn start() -> Self {
        Self { began: Instant::now(), usage: Usage::now_process() }
    }

    /// So far: on the clock, and of the processor.
    pub fn read(&self) -> (Duration, Duration) {
        (self.began.elapsed(), Usage::now_process().since(&self.usage).cpu())
    }
}

/// One side's account.
pub struct Account<'a> {
    /// What to show.
    pub shown: ProgressArgs,
    /// Say it in words too.
    pub verbose: bool,
    /// Standard output carries the data.
    pub on_stderr: bool,
    /// The way.
    pub arm: &'static Info,
    /// Its knobs.
    pub tuning: &'a Tuning,
    /// What was passed over.
    pub skipped: &'a [Skipped],
    /// Bytes moved.
    pub bytes: u64,
    /// Whether the checksums were compared and equal.
    pub verified: Option<bool>,
    /// What went wrong.
    pub error: Option<&'a str>,
    /// Time and processor time.
    pub took: (Duration, Duration),
}

impl Account<'_> {
    /// Prints what was asked for.
    pub fn tell(&self) -> Result<(), Failure> {
        if self.verbose && !self.shown.quiet {
            note(&self.words());
        }
        if !self.shown.json {
            return Ok(());
        }
        let unavailable = self.skipped.iter().map(|skipped| Unavailable {
            name: skipped.arm.clone(),
            reason: skipped.reason.clone(),
        });
        let answer = Answer {
            bytes: self.bytes,
            files: 1,
            seconds: self.took.0.as_secs_f64(),
            cpu_seconds: self.took.1.as_secs_f64(),
            mechanism: Some(self.arm.name.to_owned()),
            tuning: self.tuning.clone(),
            verified: self.verified,
            unavailable: unavailable.collect(),
            error: self.error.map(str::to_owned),
            schema: SCHEMA,
            ..Answer::default()
        };
        if self.on_stderr {
            note(&answer.line());
            return Ok(());
        }
        print(&(answer.line() + "\n"))
    }

    fn words(&self) -> String {
        let tuning = self.tuning.to_string();
        let tuning = if tuning.is_empty() { tuning } else { format!(" ({tuning})") };
        let mut text = format!(
            "{} in {}, {}, by {}{tuning}, {} of processor time",
            units::exact(self.bytes),
            units::duration(self.took.0),
            units::rate(self.bytes, self.took.0),
            self.arm.name,
            units::duration(self.took.1),
        );
        for skipped in self.skipped {
            text.push_str("\n  not used: ");
            text.push_str(&skipped.arm);
            text.push_str(": ");
            text.push_str(&skipped.reason);
        }
        text
    }
}
