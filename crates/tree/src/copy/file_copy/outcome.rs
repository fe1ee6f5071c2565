//! The steps after an attempt: count the copy, or keep the parts that a later attempt or a later run can use.

use rustix::fs::fstat;
use thalweg_core::atomic_file::remove_leftover;

use super::{
    CopyStop, FileCopy,
    prepare::{FileMethod, Prepared},
};
use crate::{
    Skip,
    copy::{
        contents::recheck::report_again,
        dest::{
            publish::{DestinationFile, PublishOutcome},
            write_target::{WriteTarget, can_be_written_into, cannot_be_named},
        },
    },
    error::{Attempt, CopyFailure, at_sink},
    identity::Id,
    names::os,
};

impl FileCopy<'_, '_> {
    /// Counts the copy, or the file that was skipped instead.
    pub(super) fn conclude(
        &mut self,
        file: &Prepared<'_>,
        published: PublishOutcome,
    ) -> Attempt<Option<Id>> {
        let (entry, stat) = (self.entry, self.source.stat);
        let backup = match published {
            PublishOutcome::Named(backup) => backup,
            PublishOutcome::Skipped => {
                self.worker.skip(entry, Skip::Exists);
                self.worker.list_file(entry);
                return Ok(None);
            }
        };
        // Only these files may have a partial file of an earlier run. For other files, a call to remove it would be
        // wasted.
        let is_clone = matches!(file.choice.method, FileMethod::Clone(_));
        let may_have_part = is_clone || entry.named_by_caller();
        let is_nameless = file.target == WriteTarget::Nameless;
        if is_nameless && may_have_part && !entry.directory.is_fresh {
            // The copy is complete, even if an old partial file cannot be removed.
            let _ = remove_leftover(file.name_at.dir, file.name_at.name, Id::of(stat));
        }
        self.worker.report_removed(entry, self.existing(), stat);
        self.worker.note_copied(entry, stat, self.existing());
        self.worker.count_file(entry, backup.as_deref());
        let copy = self.has_links().then(|| fstat(file.sink.fd()).map_err(at_sink("fstat")));
        Ok(copy.transpose()?.map(|copy| Id::of(&copy)))
    }

    /// Keeps a partial file that a later run can resume, and removes any other. Returns the reason why the attempt
    /// ended, which says whether another attempt follows.
    pub(super) fn give_up(
        &mut self,
        file: &mut Prepared<'_>,
        stopped: CopyStop,
    ) -> Result<(), CopyStop> {
        let CopyStop::Failed(failure) = stopped else { return Err(stopped) };
        let (options, existing) = (self.worker.run.options, self.existing());
        // The next attempt may write into the existing file. The partial file is then useless.
        let is_given_up = existing
            .is_some_and(|there| can_be_written_into(options, there, self.source.stat, &failure));
        let is_left = options.resume && failure.may_be_resumed() && !is_given_up;
        match &mut file.journal {
            Some(journal) if is_left => {
                journal.write();
                self.leave_part(&mut file.sink);
            }
            // The partial file will be removed. `failure` is more important than a failed removal.
            Some(journal) => drop(journal.forget()),
            // A regular file was truncated, so its old contents are lost. A device lost only overwritten bytes.
            None if file.target == WriteTarget::Existing
                && existing.is_some_and(|there| !there.is_special() || self.worker.of_file > 0) =>
            {
                self.worker.run.torn(self.entry.destination_path());
            }
            None => {}
        }
        // The journal declared a damaged range of the adopted partial file valid. The file is copied again.
        if file.sink.is_adopted() && matches!(failure, CopyFailure::Differ) {
            report_again(self.worker, self.entry);
            return Err(CopyStop::LookAgain);
        }
        if file.target == WriteTarget::Nameless && cannot_be_named(&failure) {
            self.worker.no_tmpfile = true;
            return Err(CopyStop::LookAgain);
        }
        Err(failure.into())
    }

    fn leave_part(&self, sink: &mut DestinationFile<'_>) {
        if let Some(part) = sink.leave() {
            let directory = self.entry.directory;
            let path = || directory.paths.destination_path().join(os(part));
            self.worker.run.left_part(path, directory.is_staged);
        }
    }
}
