//! The first step of a copy: choose a method, open the file to write and its journal.

use std::{
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_sys::Errno;

use super::{CopyStop, FileCopy};
use crate::{
    copy::{
        attributes::WantedAttributes,
        contents::{
            batch::name_waiting,
            clone::{Cloning, cloning},
            delta::{DeltaBase, delta_base},
            open_sink::{SinkRequest, open_sink, write_target},
            small::{Contents, is_small, read_single},
        },
        dest::{
            mode::{look_at, modes},
            publish::DestinationFile,
            write_target::WriteTarget,
        },
        name_at::NameAt,
        plans::contest::{PlannedMethod, SmallFileEnds},
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::size,
    journal::{Identity, JournalKeeper, JournalSource},
};

/// The method that moves the bytes of a file.
pub(super) enum FileMethod {
    /// A clone of the whole file.
    Clone(Cloning),
    /// A mechanism that moves the whole of a small file.
    Small(Arc<PlannedMethod>),
    /// A clone of the file that is replaced, in which only the differing blocks are written.
    Delta(DeltaBase),
    /// One write of the bytes that are already in the worker's buffer.
    Buffer,
    /// The driver. The start of the file may be in the worker's buffer.
    Driver,
}

/// The choice of method for a file.
pub(super) struct MethodChoice {
    pub method: FileMethod,
    pub contents: Contents,
    /// The time it took to read the file; `None` if this file is not timed.
    pub reading: Option<Duration>,
}

/// A file that is open on both sides.
pub(super) struct Prepared<'a> {
    pub name_at: NameAt<'a>,
    pub target: WriteTarget,
    pub sink: DestinationFile<'a>,
    pub journal: Option<JournalKeeper<BorrowedFd<'a>>>,
    pub wanted: WantedAttributes,
    /// `true` if the copy inherits the ACL of the file that it replaces.
    pub inherits_acl: bool,
    pub choice: MethodChoice,
}

impl<'c> FileCopy<'c, '_> {
    /// Chooses a method; reads a small file into the worker's buffer.
    fn choose(&mut self) -> Attempt<MethodChoice> {
        if self.worker.run.options.attributes_only {
            let contents = Contents { len: 0, is_whole: true };
            return Ok(MethodChoice { method: FileMethod::Buffer, contents, reading: None });
        }
        let is_new = self.existing().is_none();
        if !is_small(self.worker.run.options, self.source.stat) {
            // Publishes the waiting files first: the large file may take long, and other workers may need their names.
            name_waiting(self.worker);
            let method = self.choose_large().unwrap_or(FileMethod::Driver);
            return Ok(MethodChoice { method, contents: Contents::default(), reading: None });
        }
        let len = size(self.source.stat);
        let planned = if is_new { self.plan_small() } else { None };
        // Only reading and writing are timed. The creation of the file between them costs the same for both methods.
        let is_timed = self.worker.shared.contests.is_open(&self.worker.known, len);
        let clock = is_timed.then(Instant::now);
        let (method, contents) = match planned {
            Some(planned) => {
                (FileMethod::Small(planned), Contents { len: len as usize, is_whole: true })
            }
            None => match read_single(self.worker, self.source.fd, len as usize)? {
                contents if contents.is_whole => (FileMethod::Buffer, contents),
                contents => (FileMethod::Driver, contents),
            },
        };
        Ok(MethodChoice { method, contents, reading: clock.map(|began| began.elapsed()) })
    }

    /// Returns the method for a large file if clones make it cheaper than moving all bytes.
    fn choose_large(&self) -> Option<FileMethod> {
        let Some(existing) = self.existing() else {
            return cloning(self.worker, self.dir, self.source).map(FileMethod::Clone);
        };
        let name_at = existing.name_at(NameAt { dir: self.dir, name: self.entry.name });
        delta_base(self.worker, name_at, self.source, existing).map(FileMethod::Delta)
    }

    /// Returns the plan for a new small file; `None` if read and write is the chosen method.
    fn plan_small(&mut self) -> Option<Arc<PlannedMethod>> {
        let (options, shared) = (self.worker.run.options, self.worker.shared);
        let device = self.entry.directory.own.dev;
        let places =
            SmallFileEnds { source: self.source.fd, stat: self.source.stat, dir: self.dir, device };
        shared.contests.plan(&mut self.worker.known, &places, options, &shared.pairs)
    }

    /// Opens the file to write, and its journal.
    pub(super) fn prepare(&mut self) -> Result<Prepared<'c>, CopyStop> {
        let choice = self.choose()?;
        let (entry, stat, existing) = (self.entry, self.source.stat, self.existing());
        let name_at = self.destination.name_at(NameAt { dir: self.dir, name: entry.name });
        let is_single = choice.contents.is_whole || matches!(choice.method, FileMethod::Clone(_));
        let target = write_target(self.worker, entry, existing, is_single);
        let replaced = existing.filter(|existing| !existing.is_taken_away());
        let run = self.worker.run;
        let (mode, mut wanted) = modes(run, entry, stat, replaced, target);
        let source = self.source;
        let request = SinkRequest { name_at, target, there: existing, mode, is_single, source };
        let sink = match open_sink(self.worker, entry, &request) {
            Err(CopyFailure::Sink(_, Errno::EXIST, _)) if target == WriteTarget::Own => {
                return Err(CopyStop::LookAgain);
            }
            opened => opened?,
        };
        if let Some(left) = sink.left_alone() {
            run.left_alone(|| entry.destination_path(), left);
        }
        look_at(run, entry, &sink, name_at.dir, mode, &mut wanted)?;
        let inherits_acl = replaced.is_some() && target == WriteTarget::Part;
        if inherits_acl {
            (wanted.born_with_acl, wanted.has_mode) = (true, None);
        }
        let may_exist = sink.is_adopted() || !entry.directory.is_fresh;
        let mut journal = sink.journal().map(|name| {
            let source = JournalSource::Local(Identity::of(stat));
            JournalKeeper::new(name_at.dir, name, source, may_exist)
        });
        // A journal is useless without its partial file.
        if let Some(journal) = journal.as_mut().filter(|_| !sink.is_adopted()) {
            journal.forget().map_err(at_sink("unlinkat"))?;
        }
        Ok(Prepared { name_at, target, sink, journal, wanted, inherits_acl, choice })
    }
}
