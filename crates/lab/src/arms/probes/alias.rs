//! The probe `alias`: changes the source after the call, and checks whether the change shows in the sink. The number is
//! 1 if it shows, and 0 if the bytes were copied. Parameters: mechanism, source, sink.

use serde::Deserialize;
use thalweg_core::{
    Kind, Mechanism, Pair, Unfit,
    alias::{self, Alias, applies},
    mechanisms,
    scratch::{ScratchSite, Sockets},
};

use crate::arms::{ArmJob, Probe, ProbeFinding, ProbeSpec, parameters};

pub(in crate::arms) static ALIAS: Probe = Probe { name: "alias", parse };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AliasParameters {
    mechanism: String,
    source: AliasSource,
    sink: AliasSink,
}

/// Sources that can be modified afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AliasSource {
    Memory,
    File,
    Memfd,
}

/// Sinks that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AliasSink {
    File,
    Pipe,
    /// A pair of Unix stream sockets.
    Unix,
    /// A TCP connection over loopback.
    Tcp,
}

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: AliasParameters = parameters("probe alias", with)?;
    with.mechanism()?;
    Ok(Box::new(with))
}

impl AliasParameters {
    /// Returns the mechanism, and its guarantees between these ends.
    fn mechanism(&self) -> Result<(&'static dyn Mechanism, Pair), Unfit> {
        let name = &self.mechanism;
        let unknown = || Unfit::because(format!("probe alias: unknown mechanism {name:?}"));
        let mechanism = mechanisms::by_name(name).ok_or_else(unknown)?;
        let (source, sink) = (self.source.kind(), self.sink.kind());
        let pair = mechanism.info().pair(source, sink).filter(|pair| applies(**pair));
        let serves_not =
            || Unfit::because(format!("{name} does not support the pair {source} -> {sink}"));
        Ok((mechanism, *pair.ok_or_else(serves_not)?))
    }
}

impl ProbeSpec for AliasParameters {
    fn look(&self, job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let (mechanism, pair) = self.mechanism()?;
        let memfd = self.source == AliasSource::Memfd;
        let site =
            ScratchSite { memfd, sockets: self.sink.sockets(), ..ScratchSite::at(job.scratch) };
        let found = alias::probe(mechanism, pair, &site)?;
        let ends = format!("{:?} -> {:?}", self.source, self.sink).to_lowercase();
        let (number, word) = match found {
            Alias::Shared => (1.0, "a later change of the source shows in the sink"),
            Alias::Copied => (0.0, "copied"),
        };
        let text = format!("{} {ends}: {word}", self.mechanism);
        Ok(ProbeFinding { numbers: vec![number], text })
    }
}

impl AliasSource {
    fn kind(self) -> Kind {
        if self == Self::Memory { Kind::Memory } else { Kind::File }
    }
}

impl AliasSink {
    fn kind(self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Pipe => Kind::Pipe,
            Self::Unix | Self::Tcp => Kind::Socket,
        }
    }

    fn sockets(self) -> Option<Sockets> {
        match self {
            Self::File | Self::Pipe => None,
            Self::Unix => Some(Sockets::Unix),
            Self::Tcp => Some(Sockets::Tcp),
        }
    }
}
