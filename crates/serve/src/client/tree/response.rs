//! The response to the request for one small file of a tree: receives the body, compares and publishes the file.

use thalweg_core::{Cancelled, End, Report, atomic_file::Parked};

use super::{
    files::{FileSink, WantedFile},
    job::{TreeJob, check_listed},
};
use crate::{
    client::{
        FetchError,
        body::ResponseBody,
        connect::FetchConnection,
        deadline::NetDeadline,
        head::{Framing, ResponseHead},
        resume,
    },
    plans::Plans,
};

/// The response to the request for one file, and the state for receiving it.
pub struct FileResponse<'r, 'j> {
    pub connection: &'r mut FetchConnection,
    pub wanted: &'r WantedFile,
    pub job: &'r TreeJob<'j>,
    pub deadline: NetDeadline<'r>,
    pub report: &'r mut Report,
    pub plans: &'r mut Plans,
}

impl FileResponse<'_, '_> {
    /// Receives the body and publishes the file. `waits`: `true` to return the complete file without a name, if
    /// possible. An inner error concerns only this file, and the connection remains usable.
    pub fn bring(
        self,
        head: &ResponseHead,
        waits: bool,
    ) -> Result<Result<Option<Parked>, FetchError>, FetchError> {
        let (wanted, job, is_channel) = (self.wanted, self.job, self.connection.is_channel());
        let opened = check_status(head)
            .and_then(|()| check_listed(head, wanted))
            .and_then(|()| job.install.open(wanted));
        let sink = match opened {
            Ok(sink) => sink,
            // Skips the body of an error response. This fails on a network connection, so the following files are
            // requested again.
            Err(error) if self.connection.discard(head, &self.deadline) => return Ok(Err(error)),
            Err(error) => return Err(error),
        };
        let received = self.receive(&sink);
        let verified = received.and_then(|()| verify(job, head, &sink));
        let published = verified.and_then(|()| sink.publish(wanted, job.install, job.whole, waits));
        if published.is_err() {
            job.install.take_back(wanted);
        }
        match published {
            // The body was received completely, so the next response can be read.
            Err(error @ FetchError::Destination(_)) if is_channel => Ok(Err(error)),
            Err(error @ (FetchError::Differs { .. } | FetchError::Listed(_))) => Ok(Err(error)),
            Err(error) => Err(error),
            Ok(published) => {
                job.account.refused_xattrs(published.refused_xattrs);
                Ok(Ok(published.parked))
            }
        }
    }

    fn receive(self, sink: &FileSink<'_>) -> Result<(), FetchError> {
        let Self { connection, wanted, job, deadline, report, plans } = self;
        let (account, way) = (job.account, &job.options.way);
        // The file was created just now, so its type is known without fstat.
        let end = End { fd: sink.fd(), kind: thalweg_core::Kind::File, at: Some(0) };
        let mut before = 0;
        let mut note = |moved: u64| -> Result<(), Cancelled> {
            account.moved(moved - before)?;
            before = moved;
            Ok(())
        };
        // If the whole file is in the buffer, one write stores it.
        connection.gather(wanted.size, &deadline)?;
        let plans = Some((plans, wanted.directory.device));
        let body = ResponseBody { connection, deadline, way, end, note: &mut note, report, plans };
        body.bring(Framing::Length(wanted.size), Some(wanted.size)).map(drop)
    }
}

/// Reads a received file back and compares it with the digest in the head of the response, if the caller requires this.
fn verify(job: &TreeJob<'_>, head: &ResponseHead, sink: &FileSink<'_>) -> Result<(), FetchError> {
    if !job.install.verify {
        return Ok(());
    }
    let Some(expected) = job.digest(head)? else {
        return Err(FetchError::listed("the server sent no digest; the file was not saved"));
    };
    expected.check(sink.fd(), false, &|| job.account.check_cancelled()).map(drop)
}

fn check_status(head: &ResponseHead) -> Result<(), FetchError> {
    if head.status == 200 {
        return Ok(());
    }
    Err(match resume::status(head) {
        FetchError::Status { status: 404 | 410, .. } => {
            FetchError::OutOfDate("the file no longer exists".to_owned())
        }
        error => error,
    })
}
