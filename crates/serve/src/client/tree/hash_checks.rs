//! Compares local files of the listed size by their hashes, regardless of timestamps.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::AsFd,
};

use rustix::fs::FileType;

use super::{
    asking::Asking,
    files::WantedFile,
    job::{TreeJob, check_listed},
};
use crate::client::{
    FetchError, connect::FetchConnection, deadline::NetDeadline, head::ResponseHead, resume,
};

/// The files of one thread that need a comparison, and the connection that requests their hashes.
pub struct HashChecks {
    all: VecDeque<WantedFile>,
    connection: Option<FetchConnection>,
    asking: Asking,
}

impl HashChecks {
    pub fn new(job: &TreeJob<'_>) -> Self {
        let (all, asking) = (VecDeque::new(), Asking::for_hashes(job));
        Self { all, connection: None, asking }
    }

    /// Adds a file.
    pub fn push(&mut self, file: WantedFile) {
        self.all.push_back(file);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Removes the first file.
    pub fn pop(&mut self) -> Option<WantedFile> {
        self.all.pop_front()
    }

    /// Gives an unused channel back.
    pub fn release(&mut self) {
        if self.asking.is_empty()
            && self.connection.as_ref().is_some_and(FetchConnection::is_channel)
            && let Some(connection) = self.connection.take()
        {
            connection.release();
        }
    }

    /// Moves the first file to the end, so that it is compared again.
    pub fn put_off(&mut self) {
        let first = self.all.pop_front();
        self.all.extend(first);
    }

    /// Drops the connection. Unanswered requests are sent again.
    fn forget_connection(&mut self) {
        self.connection = None;
        self.asking.forget();
    }

    /// Compares the first file, and reports what a fetch would change. Adds its path to `replaced` if a fetch would replace
    /// it.
    pub fn preview_first(
        &mut self,
        job: &TreeJob<'_>,
        replaced: &mut HashSet<Vec<u8>>,
    ) -> Result<(), FetchError> {
        let account = job.account;
        let is_same = self.is_first_the_same(job);
        let Some(first) = self.pop() else { return Ok(()) };
        match is_same {
            Ok(true) => account.same(&first),
            Ok(false) => {
                let change = job.install.replacement(first.change.differs);
                account.changed(&first.path, FileType::RegularFile, first.size, change);
                replaced.insert(first.path);
            }
            Err(error @ (FetchError::Cancelled | FetchError::Unsupported(_))) => return Err(error),
            Err(error) if error.is_passing() => return Err(error),
            Err(error) => account.missed(&first.path, error),
        }
        Ok(())
    }

    /// Sends the next requests and receives the first response, which has no body.
    fn head_of_first(
        &mut self,
        job: &TreeJob<'_>,
        deadline: &NetDeadline<'_>,
    ) -> Result<ResponseHead, FetchError> {
        let mut connection = job.connect(self.connection.take(), deadline)?;
        connection.send(&self.asking.next(self.all.iter()), deadline)?;
        let limit = job.options.head_limit(true);
        let head = connection.head(&NetDeadline { limit, ..*deadline })?;
        self.asking.answered();
        if head.keeps_alive() {
            self.connection = Some(connection);
        } else {
            self.forget_connection();
        }
        Ok(head)
    }

    /// Sends the next requests and receives the first response. Returns `true` if the first local file has the listed
    /// content.
    pub fn is_first_the_same(&mut self, job: &TreeJob<'_>) -> Result<bool, FetchError> {
        let account = job.account;
        let check = || account.check_cancelled();
        let deadline = NetDeadline { limit: job.options.stall, check: &check };
        let head = self.head_of_first(job, &deadline).inspect_err(|_| self.forget_connection())?;
        if head.status != 200 {
            return Err(resume::status(&head));
        }
        let Some(first) = self.all.front() else { return Ok(false) };
        check_listed(&head, first)?;
        // The server sends no hash for a file that is unreadable or changing. Such a file is fetched, and the fetch
        // reports the reason.
        let Some(expected) = job.digest(&head)? else { return Ok(false) };
        let Some(file) = first.open_compared() else { return Ok(false) };
        match expected.check(file.as_fd(), false, &check) {
            Ok(_) => Ok(true),
            Err(FetchError::Differs { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
