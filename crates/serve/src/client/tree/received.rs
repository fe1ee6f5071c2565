//! The list of a tree: requests it, receives it, and compares it with the destination while it arrives.

use rustix::fs::fstat;
use thalweg_core::{Cancelled, End, Report, atomic_file::failed, quantity};
use thalweg_tree::sync::{CopyOutcome, DeleteReport};

use super::{
    account::FetchCounters,
    deletion::delete,
    list::EntryList,
    options::{TreeOptions, TreeWatcher},
    place::TreeDestination,
    survey::{SurveyedList, TreeSurvey},
};
use crate::{
    client::{
        FetchError, FetchUrl,
        ask::ask,
        body::ResponseBody,
        connect::FetchConnection,
        deadline::{CancelCheck, NetDeadline},
        head::ResponseHead,
        peer,
        resume::FileRequest,
        retry,
    },
    manifest::{ListRequest, MEDIA_TYPE},
};

/// A list that was received completely and compared with the destination.
pub struct ReceivedList {
    pub list: EntryList,
    pub found: SurveyedList,
    /// URL of the directory after redirects.
    pub base: FetchUrl,
}

impl ReceivedList {
    /// Receives the list, with retries.
    pub fn take_in(
        target: &FetchUrl,
        place: &TreeDestination,
        options: &TreeOptions,
        watcher: &dyn TreeWatcher,
    ) -> Result<Self, FetchError> {
        let files = &options.files;
        let mut tries = 0;
        loop {
            let error = match Self::take_in_once(target, place, options, watcher) {
                Err(error) if error.is_passing() => error,
                ended => return ended,
            };
            tries += 1;
            let Some(pause) = retry::pause(tries, files.retries, error.after()) else {
                return Err(error);
            };
            let report = |message: &str| watcher.report(message);
            retry::wait(&error, pause, report, &|| watcher.check_cancelled())?;
        }
    }

    fn take_in_once(
        target: &FetchUrl,
        place: &TreeDestination,
        options: &TreeOptions,
        watcher: &dyn TreeWatcher,
    ) -> Result<Self, FetchError> {
        let files = &options.files;
        let check = || watcher.check_cancelled();
        let (mut connection, head, from) = ask_for_list(target, options, &check)?;
        // Reads the time of the directory first: without `O_TMPFILE`, the creation of the list's file changes it.
        let top = place.existing().map(|fd| fstat(fd).map_err(failed("fstat"))).transpose()?;
        let mut list = EntryList::create(place.beside())?;
        list.source = peer::source_of(&head);
        let (most, install) = (options.most_list, options.comparison_policy());
        let mut survey = TreeSurvey::of(&list, place.beside(), place.existing(), install, options)?;
        let end = End { at: Some(0), ..End::of(list.fd()).map_err(failed("fstat"))? };
        let mut refused = None;
        let mut note = |moved: u64| -> Result<(), Cancelled> {
            // [`ResponseBody::bring`] calls this once more after an error, when the survey cannot continue.
            if refused.is_some() {
                return Err(Cancelled);
            }
            refused = match survey.advance() {
                Ok(true) if moved <= most => return watcher.check_cancelled(),
                Ok(_) => Some(too_long(most)),
                Err(error) => Some(error),
            };
            Err(Cancelled)
        };
        let body = ResponseBody {
            connection: &mut connection,
            deadline: NetDeadline { limit: files.stall, check: &check },
            way: &files.way,
            end,
            note: &mut note,
            report: &mut Report::default(),
            plans: None,
        };
        let received = body.bring(head.framing()?, None);
        if let Some(refused) = refused {
            return Err(refused);
        }
        received?;
        connection.finish(&head);
        let found = SurveyedList { top, ..survey.finish()? };
        Ok(Self { list, found, base: from.as_directory() })
    }

    /// Deletes the entries that the list does not have, if the sync requests it.
    pub fn delete(
        &self,
        options: &TreeOptions,
        counters: &FetchCounters<'_>,
        watcher: &dyn TreeWatcher,
    ) -> Result<Option<DeleteReport>, FetchError> {
        // The list of a single file lacks the other entries of the destination.
        let sync = options.sync.as_ref().filter(|_| options.only.is_none());
        let Some(sync) = sync else { return Ok(None) };
        // Entries that the server left out may exist in the destination, so they count as errors.
        let errors = counters.missed_count() + self.found.left_out();
        let outcome = CopyOutcome { errors, created: counters.created(), census: None };
        delete(&self.list, self.found.filter.of_deletion(), sync, &outcome, watcher)
    }
}

/// Requests the list. Returns the connection, the head of the answer, and the URL after redirects.
fn ask_for_list(
    target: &FetchUrl,
    options: &TreeOptions,
    check: &CancelCheck<'_>,
) -> Result<(FetchConnection, ResponseHead, FetchUrl), FetchError> {
    let files = &options.files;
    // Only a thalweg server on a stream is sure to know the options of the request.
    let request = match files.channels {
        Some(_) => ListRequest { as_entry: options.only.is_some(), ..options.list.clone() },
        None => ListRequest::default(),
    };
    let answer = ask(&target.manifest(&request), &FileRequest::ALL, files, check);
    let (connection, head, from) = answer.map_err(|error| match error {
        FetchError::Status { status: 401 | 407, .. } => error,
        FetchError::Status { status, .. } if !error.is_passing() => {
            no_list(target, &format!("the server returned {status}"))
        }
        error => error,
    })?;
    if let Some(channels) = &files.channels {
        peer::check_format(&head, channels.name())?;
    }
    let kind = head.get("content-type").unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(MEDIA_TYPE) {
        return Err(no_list(target, "the response is not a list of files"));
    }
    Ok((connection, head, from))
}

fn too_long(most: u64) -> FetchError {
    let most = quantity::exact(most);
    FetchError::broken(format!("the list of files is larger than {most}; raise --max-list"))
}

fn no_list(target: &FetchUrl, why: &str) -> FetchError {
    FetchError::Unsupported(format!(
        "'{target}' does not list a directory ({why}): -r needs `thalweg serve` at the other end; \
         for other servers, use `wget -r`"
    ))
}
