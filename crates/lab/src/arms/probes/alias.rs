//! Probe `alias`: does a change of the source, made after the call has returned, show in the sink?
//! 1 if it does, 0 if the bytes were copied. Parameters: mechanism, source, sink.

use rustix::{
    fs::{MemfdFlags, memfd_create},
    net::sockopt::socket_domain,
};
use serde::Deserialize;
use std::{fs::File, path::Path};
use thalweg_core::{
    End, Facts, Guarantees, Kind, Mechanism, Pair, Sink, Source, Tuning, Unfit,
    alias::{Alias, applies},
    mechanisms,
    scratch::{Scratch, Site, Sockets},
};
use thalweg_sys::{Errno, io};

use crate::arms::{
    Finding, Job, Probe,
    content::Content,
    parameters,
    transfer::{end_of, move_exactly},
};

pub(in crate::arms) struct AliasProbe;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct With {
    mechanism: String,
    source: From,
    sink: To,
}

/// Sources that can be written to afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::arms) enum From {
    Memory,
    File,
    /// A file in memory.
    Memfd,
}

/// Sinks that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::arms) enum To {
    File,
    Pipe,
    /// A pair of unix stream sockets.
    Unix,
    /// A TCP connection over loopback.
    Tcp,
}

const SOME: usize = 4096;

impl Probe for AliasProbe {
    fn name(&self) -> &'static str {
        "alias"
    }

    fn summary(&self) -> &'static str {
        "1 if a later change of the source shows in the sink, 0 if the bytes were copied"
    }

    fn run(&self, job: &Job<'_>) -> Result<Finding, Unfit> {
        let with: With = parameters("probe alias", job.with)?;
        let mechanism = mechanisms::by_name(&with.mechanism).ok_or_else(|| {
            Unfit::because(format!("probe alias: there is no mechanism {:?}", with.mechanism))
        })?;
        let found = look(mechanism, with.source, with.sink, job.scratch)?;
        let ends = format!("{:?} -> {:?}", with.source, with.sink).to_lowercase();
        let (number, word) = match found {
            Alias::Shared => (1.0, "a later change of the source shows in the sink"),
            Alias::Copied => (0.0, "copied"),
        };
        let text = format!("{} {ends}: {word}", with.mechanism);
        Ok(Finding { numbers: vec![number], text })
    }
}

/// Moves a page, writes over the source, looks at the sink.
pub(in crate::arms) fn look(
    mechanism: &dyn Mechanism,
    from: From,
    to: To,
    folder: &Path,
) -> Result<Alias, Unfit> {
    let (source, sink) = (from.kind(), to.kind());
    let info = mechanism.info();
    let pair = info.pair(source, sink).filter(|pair: &&Pair| applies(**pair));
    if pair.is_none() {
        return Err(Unfit::because(format!("{} serves no {source} -> {sink}", info.name)));
    }
    let failed = |e: Errno| Unfit::because(format!("probe alias: {e}"));
    let mut before = vec![0; SOME];
    Content::Pattern.fill(0, &mut before);
    let after: Vec<u8> = before.iter().map(|byte| !byte).collect();
    let sockets = if to == To::Tcp { Sockets::Tcp } else { Sockets::Unix };
    // A memfd is made here; scratch ends know files that lie in a folder.
    let memfd = (from == From::Memfd).then(|| memfd_with(&before)).transpose().map_err(failed)?;
    let kinds = (if memfd.is_some() { Kind::Null } else { source }, sink);
    let mut scratch = Scratch::new(kinds, &before, &Site::at(folder), sockets)?;
    let transfer = scratch.transfer(SOME as u64, Guarantees::SHARED);
    let mut transfer = transfer.map_err(failed)?;
    if let Some(memfd) = &memfd {
        transfer.source = Source::Fd(end_of(memfd)?);
    }
    if let Sink::Fd(end) = &transfer.sink {
        is_wanted(end, to)?;
    }
    mechanism.fits(&Facts::of(&transfer))?;
    let mut mover = mechanism.open(transfer, &Tuning::default())?;
    move_exactly(mover.as_mut(), SOME as u64)?;
    drop(mover);
    match &memfd {
        Some(memfd) => io::pwrite(memfd, &after, 0).map(|_| ()),
        None => scratch.overwrite_source(&after),
    }
    .map_err(failed)?;
    match scratch.arrived(SOME).map_err(failed)? {
        Some(bytes) if bytes == before => Ok(Alias::Copied),
        Some(bytes) if bytes == after => Ok(Alias::Shared),
        Some(bytes) => {
            let text = format!("probe alias: {} bytes arrived that were never sent", bytes.len());
            Err(Unfit::because(text))
        }
        None => Err(Unfit::because("probe alias: the sink cannot be read")),
    }
}

/// Scratch ends are what was asked for; said here because a unix socket may alias where TCP copies.
fn is_wanted(end: &End<'_>, to: To) -> Result<(), Unfit> {
    let unix = || socket_domain(end.fd).ok().map(|d| d == rustix::net::AddressFamily::UNIX);
    match to {
        To::Tcp if unix() != Some(false) => Err(Unfit::because("probe alias: no TCP connection")),
        To::Unix if unix() != Some(true) => Err(Unfit::because("probe alias: no unix socket")),
        _ => Ok(()),
    }
}

fn memfd_with(bytes: &[u8]) -> Result<File, Errno> {
    let memory = memfd_create("thalweg-alias", MemfdFlags::CLOEXEC)?;
    io::pwrite(&memory, bytes, 0)?;
    Ok(memory.into())
}

impl From {
    fn kind(self) -> Kind {
        if self == Self::Memory { Kind::Memory } else { Kind::File }
    }
}

impl To {
    fn kind(self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Pipe => Kind::Pipe,
            Self::Unix | Self::Tcp => Kind::Socket,
        }
    }
}
