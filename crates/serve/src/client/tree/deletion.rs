//! Deletes the entries of the destination that the list does not have.

use std::sync::Arc;

use thalweg_core::Cancelled;
use thalweg_tree::{
    Event, Events, Filter,
    sync::{CopyOutcome, DeleteOptions, DeleteReport, delete_extra},
};

use super::{
    list::EntryList,
    listed_names::ListedNames,
    options::{TreeSync, TreeWatcher},
};
use crate::client::FetchError;

/// Deletes the entries that the list does not have, if the sync requests it. `filter`: the filter of the fetch.
/// `outcome`: the result of the fetch. The caller must have completed the fetch.
pub fn delete(
    list: &EntryList,
    filter: Option<Arc<dyn Filter>>,
    sync: &TreeSync,
    outcome: &CopyOutcome,
    watcher: &dyn TreeWatcher,
) -> Result<Option<DeleteReport>, FetchError> {
    let Some(delete) = &sync.delete else { return Ok(None) };
    let kept = sync.kept.clone();
    let options = DeleteOptions { dry_run: sync.dry_run, filter, kept, ..delete.clone() };
    let names = ListedNames::of(list)?;
    let deleted = delete_extra(&sync.path, &names, &options, outcome, &DeletionEvents(watcher));
    deleted.map(Some).map_err(|error| FetchError::listed(&error.to_string()))
}

/// Passes the events of a deletion to the watcher of the fetch.
struct DeletionEvents<'a>(&'a dyn TreeWatcher);

impl Events for DeletionEvents<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Sync(change) => self.0.changed(change),
            Event::Failed(error) => self.0.report(&error.to_string()),
            _ => {}
        }
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.0.check_cancelled()
    }
}
