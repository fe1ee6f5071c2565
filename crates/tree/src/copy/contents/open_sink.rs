//! Opens the file that a copy writes.

use rustix::fs::{AtFlags, OFlags};
use thalweg_core::atomic_file::Leftovers;
use thalweg_sys::Errno;

use crate::{
    Refusal,
    copy::{
        copy_entry::{CopyEntry, SourceFile},
        dest::{existing::Existing, publish::DestinationFile, write_target::WriteTarget},
        name_at::NameAt,
        run::Concurrency,
        worker::CopyWorker,
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::Id,
};

/// Returns the kind of name under which the file is written.
pub(crate) fn write_target(
    worker: &CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    there: Option<&Existing>,
    is_single: bool,
) -> WriteTarget {
    let options = worker.run.options;
    match there {
        Some(there) if there.is_written_into(options) => WriteTarget::Existing,
        None if options.inplace => WriteTarget::Own,
        // In an append-only directory, linkat(2) may add the name of an unnamed file. A partial file could be neither
        // renamed nor removed there.
        None if entry.directory.is_append_only() => {
            if worker.no_tmpfile {
                WriteTarget::Own
            } else {
                WriteTarget::Nameless
            }
        }
        // No other user sees a staging directory, so its files have their final names before they are complete.
        _ if is_single && entry.directory.is_staged => WriteTarget::Own,
        // `--resume` needs a partial file, but concurrent workers do not resume partial files.
        None if is_single && (!options.resume || is_concurrent(worker)) && !worker.no_tmpfile => {
            WriteTarget::Nameless
        }
        _ => WriteTarget::Part,
    }
}

/// Returns `true` if other workers may write this file at the same time and no lock prevents that.
fn is_concurrent(worker: &CopyWorker<'_>) -> bool {
    worker.run.concurrency != Concurrency::None
}

/// The file to write.
pub(crate) struct SinkRequest<'a, 'e> {
    pub name_at: NameAt<'a>,
    pub target: WriteTarget,
    /// The existing entry with the name.
    pub there: Option<&'e Existing>,
    /// The mode with which a new file is created.
    pub mode: u32,
    /// `true` if one call writes the whole contents.
    pub is_single: bool,
    pub source: SourceFile<'e>,
}

/// Opens the file to write.
pub(crate) fn open_sink<'a>(
    worker: &mut CopyWorker<'_>,
    entry: &CopyEntry<'_>,
    request: &SinkRequest<'a, '_>,
) -> Attempt<DestinationFile<'a>> {
    let SinkRequest { name_at, target, there, mode, is_single, source } = *request;
    let options = worker.run.options;
    // A pipe that is also opened for reading would not wait for a reader, and the written bytes would be lost.
    let reads = options.verify.is_some() && there.is_none_or(Existing::can_be_read_again);
    let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
    match target {
        WriteTarget::Own => match DestinationFile::own(name_at, access, mode) {
            // This copy has created the name: the destination treats two source names as equal (case folding).
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if entry.directory.is_fresh => {
                Err(CopyFailure::Refused(Refusal::JustCreated))
            }
            // A killed run left this incomplete file under its final name, in a directory that was not visible.
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if entry.directory.is_staged => {
                let _ = rustix::fs::unlinkat(name_at.dir, name_at.name, AtFlags::empty());
                DestinationFile::own(name_at, access, mode)
            }
            answer => answer,
        },
        WriteTarget::Nameless => {
            if let Some(sink) = DestinationFile::nameless(name_at, access, mode)? {
                return Ok(sink);
            }
            worker.no_tmpfile = true;
            if entry.directory.is_append_only() {
                return DestinationFile::own(name_at, access, mode);
            }
            if is_concurrent(worker) {
                return DestinationFile::apart(name_at);
            }
            DestinationFile::part(name_at, Leftovers { resume: false, spare: Id::of(source.stat) })
        }
        WriteTarget::Part if is_concurrent(worker) => DestinationFile::apart(name_at),
        WriteTarget::Part => {
            let resume = options.resume && !is_single;
            DestinationFile::part(name_at, Leftovers { resume, spare: Id::of(source.stat) })
        }
        WriteTarget::Existing => {
            match DestinationFile::existing(name_at, access, source, &|| entry.source_path()) {
                Err(CopyFailure::Sink(_, Errno::ACCESS | Errno::PERM | Errno::TXTBSY, _))
                    if options.force =>
                {
                    rustix::fs::unlinkat(name_at.dir, name_at.name, AtFlags::empty())
                        .map_err(at_sink("unlinkat"))?;
                    DestinationFile::own(name_at, access, mode)
                }
                answer => answer,
            }
        }
    }
}
