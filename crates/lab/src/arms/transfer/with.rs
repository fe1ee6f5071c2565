//! The parameters of a transfer in a study, and the combinations that are invalid.

use serde::Deserialize;
use thalweg_core::{
    Guarantees, Kind, Knob, Mechanism, Role, Tuning, Unfit, Unit, mechanisms,
    quantity::{Size, parse_rate},
};

use crate::arms::{knobs, parameters};
use thalweg_measure::arms::{content::ByteContent, knobs::only};

/// All parameters of a transfer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferParameters {
    /// A name from the list of mechanisms.
    pub mechanism: String,
    /// The knobs of the mechanism: sizes or numbers.
    #[serde(default, deserialize_with = "knobs::tuning")]
    pub tuning: Tuning,
    /// The source of the bytes.
    pub source: TransferSource,
    pub sink: TransferSink,
    /// The file system of source and sink files.
    #[serde(default = "scratch")]
    pub place: String,
    /// `true` if a sink file is newly created each time, `false` if it is overwritten.
    #[serde(default)]
    pub fresh: Option<bool>,
    /// Bytes per second of a paced source, like `100MB/s`.
    pub rate: Option<String>,
    /// Capacity of the pipe that is the source or sink; the kernel's default if omitted.
    pub pipe: Option<Size>,
    /// The buffer size of the process that reads a pipe or socket.
    pub receiver_buffer: Option<Size>,
    /// The congestion control of a TCP connection; the system's default if omitted.
    pub congestion: Option<String>,
    /// The required guarantees: a mechanism with weaker ones is unfit.
    #[serde(default)]
    pub needs: Needs,
}

/// The source of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TransferSource {
    /// `/dev/zero`.
    Zero,
    /// A file in the page cache.
    File,
    Memfd,
    /// A pipe that another process fills at a steady rate, like a slow disk.
    Paced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TransferSink {
    /// `/dev/null`.
    Null,
    File,
    /// A pipe that another process reads.
    Pipe,
    /// A unix stream socket that another process reads.
    Unix,
    /// A TCP connection over loopback that another process reads.
    Tcp,
}

/// The required guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Needs {
    /// None: pages may stay shared with the source.
    #[default]
    Shared,
    /// The sink is independent of the source.
    Copied,
}

fn scratch() -> String {
    "scratch".to_owned()
}

impl TransferParameters {
    /// Parses the parameters. Parameters that would be ignored are an error.
    pub fn read(table: &toml::Table) -> Result<Self, Unfit> {
        let with: Self = parameters("transfer", table)?;
        let idle = [
            ("rate", with.rate.is_some() && with.source != TransferSource::Paced),
            ("congestion", with.congestion.is_some() && with.sink != TransferSink::Tcp),
            ("receiver_buffer", with.receiver_buffer.is_some() && !with.sink.is_read()),
            ("pipe", with.pipe.is_some() && !with.has_pipe()),
            ("fresh", with.fresh.is_some() && with.sink != TransferSink::File),
        ];
        match idle.iter().find(|(_, idle)| *idle) {
            Some((name, _)) => {
                let (from, to) = (with.source, with.sink);
                let text = format!("{name} cannot be used from {from:?} to {to:?}");
                Err(Unfit::because(format!("parameters of transfer: {}", text.to_lowercase())))
            }
            None => Ok(with),
        }
    }

    fn has_pipe(&self) -> bool {
        self.source == TransferSource::Paced || self.sink == TransferSink::Pipe
    }

    /// Returns the mechanism with its tuning.
    pub fn tuned(&self) -> Result<(&'static dyn Mechanism, Tuning), Unfit> {
        let name = &self.mechanism;
        let mechanism = mechanisms::by_name(name);
        let mechanism = mechanism.filter(|m| m.info().role != Role::Harness);
        let Some(mechanism) = mechanism else {
            return Err(Unfit::because(format!("unknown mechanism {name:?}; see `thalweg list`")));
        };
        let known: Vec<&str> = mechanism.info().knobs.iter().map(|known| known.name).collect();
        only(name, &self.tuning, &known)?;
        let is_nothing =
            |knob: &&Knob| self.tuning.get(knob.name) == Some(0) && !knob.values.contains(&0);
        if let Some(knob) = mechanism.info().knobs.iter().find(is_nothing) {
            return Err(Unfit::because(format!("{name}: {} = 0 moves nothing", knob.name)));
        }
        Ok((mechanism, self.tuning.clone()))
    }

    /// Returns the rate of a paced source.
    pub fn rate(&self) -> Result<u64, Unfit> {
        let text = self.rate.as_deref().unwrap_or_default();
        let rate = parse_rate(text).ok().filter(|rate| *rate > 0);
        rate.ok_or_else(|| {
            Unfit::because(format!("a paced source needs rate = \"100MB/s\", not {text:?}"))
        })
    }
}

impl TransferSource {
    /// Returns the kind of the end.
    pub fn kind(self) -> Kind {
        match self {
            Self::Zero => Kind::Device,
            Self::File | Self::Memfd => Kind::File,
            Self::Paced => Kind::Pipe,
        }
    }

    pub fn content(self) -> ByteContent {
        if self == Self::Zero { ByteContent::Zeros } else { ByteContent::Pattern }
    }

    /// Returns `true` if the source has no end.
    pub fn is_endless(self) -> bool {
        matches!(self, Self::Zero | Self::Paced)
    }
}

impl TransferSink {
    /// Returns the kind of the end.
    pub fn kind(self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::File => Kind::File,
            Self::Pipe => Kind::Pipe,
            Self::Unix | Self::Tcp => Kind::Socket,
        }
    }

    /// Returns `true` if another process reads the sink.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Pipe | Self::Unix | Self::Tcp)
    }
}

impl Needs {
    /// Returns the guarantees in the planner's form.
    pub fn guarantees(self) -> Guarantees {
        if self == Self::Copied { Guarantees::COPIED } else { Guarantees::SHARED }
    }
}

/// Returns the number of bytes that a mechanism moves until it has touched all of its own buffers. After opening, these
/// buffers are fresh memory, and a sample must not include their page faults.
pub(super) fn touching(mechanism: &dyn Mechanism, tuning: &Tuning) -> u64 {
    let info = mechanism.info();
    let Some(buffer) = info.knobs.iter().find(|knob| knob.name == "buffer") else { return 0 };
    // Each thread and each ring entry has one buffer.
    let counts = info.knobs.iter().filter(|knob| knob.unit == Unit::Count);
    let counts = counts.map(|knob| info.knob(tuning, knob.name).max(1));
    counts.fold(info.knob(tuning, buffer.name), u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TransferParameters, Unfit> {
        TransferParameters::read(&text.parse().unwrap())
    }

    const ENDS: &str = "source = 'zero'\nsink = 'null'\n";

    #[test]
    fn parameters_that_are_unknown_or_would_be_ignored_are_refused_by_name() {
        let wrong = [
            ("mechanism = 'splice'\nspeed = 3", "speed"),
            ("mechanism = 'splice'\nrate = '100MB/s'", "rate cannot be used from zero to null"),
            ("mechanism = 'splice'\ncongestion = 'bbr'", "congestion"),
            ("mechanism = 'splice'\nreceiver_buffer = '4KiB'", "receiver_buffer"),
            ("mechanism = 'splice'\npipe = '4KiB'", "pipe"),
            ("mechanism = 'splice'\nfresh = true", "fresh"),
            ("mechanism = 3", "mechanism"),
            ("", "mechanism"),
        ];
        for (text, expected) in wrong {
            let reason = read(&format!("{ENDS}{text}")).unwrap_err().reason;
            assert!(reason.contains(expected), "{text}: {reason}");
        }
        assert!(read("mechanism = 'splice'\nsource = 'tape'\nsink = 'null'").is_err());
    }

    #[test]
    fn a_mechanism_and_its_knobs_are_looked_up() {
        let tuned = |text: &str| read(&format!("{ENDS}{text}")).and_then(|with| with.tuned());
        let (mechanism, tuning) =
            tuned("mechanism = 'read-write'\ntuning = { buffer = '16MiB' }").unwrap();
        assert_eq!(tuning, Tuning::of("buffer", 16 << 20));
        assert_eq!(touching(mechanism, &tuning), 16 << 20);
        let wrong = [
            ("mechanism = 'teleport'", "unknown mechanism"),
            ("mechanism = 'null'", "unknown mechanism"),
            (
                "mechanism = 'splice'\ntuning = { buffer = 1 }",
                "no knob \"buffer\"; it has [\"pipe\"]",
            ),
            ("mechanism = 'splice'\ntuning = { pipe = 'big' }", "is not a size"),
            ("mechanism = 'read-write'\ntuning = { buffer = 0 }", "buffer = 0 moves nothing"),
        ];
        for (text, expected) in wrong {
            let Err(unfit) = tuned(text) else { panic!("{text} was taken") };
            assert!(unfit.reason.contains(expected), "{text}: {}", unfit.reason);
        }
    }

    #[test]
    fn every_thread_has_a_buffer_to_touch() {
        let parallel = mechanisms::by_name("read-write-parallel").unwrap();
        let tuning = Tuning::of("threads", 3).with("buffer", 1000);
        assert_eq!(touching(parallel, &tuning), 3000);
        let splice = mechanisms::by_name("splice").unwrap();
        assert_eq!(touching(splice, &Tuning::default()), 0);
    }

    #[test]
    fn a_rate_is_a_size_a_second() {
        let rate = |text: &str| {
            let ends = "mechanism = 'splice'\nsource = 'paced'\nsink = 'null'\n";
            read(&format!("{ends}{text}")).unwrap().rate()
        };
        assert_eq!(rate("rate = '100MB/s'"), Ok(100_000_000));
        for bad in ["", "rate = '100 people'", "rate = '0B/s'", "rate = 'fast'"] {
            assert!(rate(bad).unwrap_err().reason.contains("100MB/s"), "{bad}");
        }
    }
}
