//! Transfers between two open descriptors.

use rustix::fs::{SeekFrom, seek};
use std::os::fd::AsFd;
use thalweg_core::{
    Driver, End, Facts, Guarantees, Plan, Report, Request, Side, Sink, Source, Transfer,
};

use crate::{Error, Result, saved::profile};

/// Moves the rest of `source` into `sink`. The report contains the mechanisms and the speed.
///
/// Each of them may be a file, a block device, a pipe, a socket or a terminal. A file is read and written from its
/// offset, and the offset is advanced by the bytes moved, as with [`std::io::copy`]. Flush your own buffers
/// (`BufWriter`) before the call. Returns at the end of the source.
///
/// ```
/// use std::{fs::File, io::Write};
/// use thalweg::Guarantees;
///
/// # let folder = tempfile::tempdir()?;
/// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
/// # std::fs::write(&from, "some bytes")?;
/// let (source, mut sink) = (File::open(&from)?, File::create(&to)?);
/// let report = thalweg::copy(&source, &sink, Guarantees::default())?;
/// assert_eq!(report.bytes, 10);
/// sink.write_all(b", and more")?;
/// assert_eq!(std::fs::read(&to)?, b"some bytes, and more");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// - [`Error::End`]: a descriptor cannot be used at all.
/// - [`Error::Unsupported`]: no mechanism provides the guarantees between these descriptors.
/// - [`Error::Move`], with the report so far: a call failed.
pub fn copy(source: &impl AsFd, sink: &impl AsFd, needs: Guarantees) -> Result<Report> {
    let (from, to) = ends(source, sink)?;
    let mut transfer = between(from, to, needs);
    let plan = Plan::make(&Facts::of(&transfer), &Request::default(), profile().map(AsRef::as_ref));
    if let Some(reason) = plan.impossible {
        return Err(Error::Unsupported { reason });
    }
    let outcome = Driver::default().run(&mut transfer, &plan, &mut ());
    // The transfer uses explicit offsets, so the offsets of the files have not been advanced yet.
    let sought = behind(from, Side::Source, outcome.report.bytes)
        .and_then(|()| behind(to, Side::Sink, outcome.report.bytes));
    match outcome.error {
        Some(error) => Err(Error::Move { error, report: Box::new(outcome.report) }),
        None => sought.map(|()| outcome.report),
    }
}

fn behind(end: End<'_>, side: Side, bytes: u64) -> Result<()> {
    let Some(at) = end.at else { return Ok(()) };
    let sought = seek(end.fd, SeekFrom::Start(at + bytes));
    sought.map(drop).map_err(|errno| Error::End { side, errno })
}

/// Returns the plan that [`copy()`] would use: the verdict about every mechanism, and the reason.
///
/// ```
/// use thalweg::Guarantees;
///
/// let (reader, writer) = std::io::pipe()?;
/// let file = tempfile::tempfile()?;
/// let plan = thalweg::plan(&file, &writer, Guarantees::default())?;
/// let chosen = plan.chosen().expect("a mechanism from a file to a pipe");
/// println!("{} of {} mechanisms", chosen.mechanism, plan.verdicts.len());
/// # drop(reader);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::End`] if a descriptor cannot be used at all.
pub fn plan(source: &impl AsFd, sink: &impl AsFd, needs: Guarantees) -> Result<Plan> {
    let (from, to) = ends(source, sink)?;
    Ok(Plan::make(
        &Facts::of(&between(from, to, needs)),
        &Request::default(),
        profile().map(AsRef::as_ref),
    ))
}

fn ends<'a>(source: &'a impl AsFd, sink: &'a impl AsFd) -> Result<(End<'a>, End<'a>)> {
    let end = |fd, side| End::of(fd).map_err(|errno| Error::End { side, errno });
    Ok((end(source.as_fd(), Side::Source)?, end(sink.as_fd(), Side::Sink)?))
}

fn between<'a>(from: End<'a>, to: End<'a>, needs: Guarantees) -> Transfer<'a> {
    Transfer { source: Source::Fd(from), sink: Sink::Fd(to), len: None, needs }
}
