//! The shared state of a copy.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    copy::{
        links::LinkTable,
        plans::{contest::Contests, pair::DevicePairs},
        run::CopyRun,
        task::CopyTask,
    },
    identity::Id,
    queue::TaskQueue,
};

/// State shared by all workers of one copy.
pub(crate) struct CopyShared<'r> {
    pub run: CopyRun<'r>,
    pub queue: TaskQueue<CopyTask>,
    pub links: LinkTable,
    pub pairs: DevicePairs,
    pub contests: Contests,
    /// In a dry run of a sync: for each file with several names, the existing file of the first name met.
    first_names: Mutex<HashMap<Id, Option<Id>>>,
}

impl<'r> CopyShared<'r> {
    pub fn new(run: CopyRun<'r>) -> Self {
        let links = LinkTable::new(run.options);
        let (queue, pairs, contests, first_names) = Default::default();
        Self { run, queue, links, pairs, contests, first_names }
    }

    /// Returns the existing file of the first name of this source; `None` if this is the first, which is recorded.
    pub fn foreseen(&self, source: Id, there: Option<Id>) -> Option<Option<Id>> {
        let mut names = self.first_names.lock().unwrap_or_else(PoisonError::into_inner);
        let first = names.get(&source).copied();
        names.entry(source).or_insert(there);
        first
    }
}
