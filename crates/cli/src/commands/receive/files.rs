//! The files that are being received, and their destinations.

use std::{os::fd::BorrowedFd, path::PathBuf};
use thalweg_channel::bulk::{Announced, FromOpen, NotMoved, Sink};
use thalweg_core::{
    Driver, End, Facts, Guarantees, Plan, Request, Source, Transfer, Watch,
    atomic_file::Destination, error::errno_name, mechanisms::LAST_RESORT, shown,
};
use thalweg_sys::Errno;
use thalweg_tree::install::{InheritFrom, inherit};

use super::ReceiveArgs;
use crate::{
    commands::{stream, transfer_report::SoFar},
    exit::{CommandFailure, transfer_failure},
    interrupt,
    output::text::complain,
    profile::{Moves, SavedProfile},
    stdio,
};

/// A file that is being received.
struct IncomingFile {
    destination: Destination,
    path: PathBuf,
    /// Bytes received so far.
    bytes: u64,
    /// The mechanism that moved the bytes, if the sender passed an open descriptor.
    opened: Option<String>,
}

impl IncomingFile {
    fn new(destination: Destination, path: PathBuf) -> Self {
        if let Some(left) = destination.left_alone() {
            complain(&format!("warning: {left}"));
        }
        Self { destination, path, bytes: 0, opened: None }
    }
}

/// Opens the destinations of the files, one after the other.
pub struct Receiving<'a> {
    args: &'a ReceiveArgs,
    /// The destination, opened before a sender connects; `None` if it is a directory, or after the first file.
    single: Option<IncomingFile>,
    current: Option<IncomingFile>,
    in_folder: bool,
    pub so_far: SoFar,
    /// The profile, loaded when the first open descriptor arrives.
    saved: Option<SavedProfile>,
    /// Lines about changes of mechanism during copies from open descriptors.
    pub notes: Vec<String>,
}

impl<'a> Receiving<'a> {
    pub fn of(args: &'a ReceiveArgs) -> Result<Self, CommandFailure> {
        let path = args.destination.clone();
        let in_folder = path.is_dir();
        let single = if in_folder {
            None
        } else {
            Some(IncomingFile::new(stdio::destination(&path)?, path))
        };
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

    fn open(&mut self, file: &Announced) -> Result<IncomingFile, String> {
        let folder = shown(&self.args.destination);
        if !self.in_folder {
            let refused = || {
                format!("'{folder}': not a directory; several files require an existing directory")
            };
            if file.total.is_some_and(|total| total > 1) {
                return Err(refused());
            }
            return self.single.take().ok_or_else(refused);
        }
        let name = file.name.as_ref();
        let name = name.ok_or_else(|| {
            format!("'{folder}' is a directory, but a stream has no name; write the path of a file")
        })?;
        let path = self.args.destination.join(name);
        let opened = Destination::in_folder(&self.args.destination, name, self.args.force);
        match opened {
            Ok(destination) => Ok(IncomingFile::new(destination, path)),
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
        if let Some(IncomingFile { mut destination, path, bytes, opened }) = self.current.take() {
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
        let Some(IncomingFile { destination, path, bytes, opened }) = &mut self.current else {
            return Err(NotMoved::Refused(
                "the sender passed an open file that it had not announced".to_owned(),
            ));
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
