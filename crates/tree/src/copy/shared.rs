//! The shared state of a copy.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Mutex,
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
    threads::locked,
};

/// State shared by all workers of one copy.
pub(crate) struct CopyShared<'r> {
    pub run: CopyRun<'r>,
    pub queue: TaskQueue<CopyTask>,
    pub links: LinkTable,
    pub pairs: DevicePairs,
    pub contests: Contests,
    /// Used in a dry run of a sync. For each source with several names, the existing file under the name that the walk
    /// met first; `None` if that name would be a new file.
    first_names: Mutex<HashMap<Id, Option<Id>>>,
    /// Sources with several names, each with a file that its copy replaced because the attributes differed.
    renewed: Mutex<HashSet<(Id, Id)>>,
}

impl<'r> CopyShared<'r> {
    pub fn new(run: CopyRun<'r>) -> Self {
        let links = LinkTable::new(run.options);
        let (queue, pairs, contests, first_names, renewed) = Default::default();
        Self { run, queue, links, pairs, contests, first_names, renewed }
    }

    /// Records that a copy of this source replaces a file that has other names, because its attributes differ.
    pub fn note_renewed(&self, source: Id, there: Id) {
        locked(&self.renewed).insert((source, there));
    }

    /// Returns `true` if a copy of this source replaced the file under another name, because its attributes differ.
    pub fn is_renewed(&self, source: Id, there: Id) -> bool {
        locked(&self.renewed).contains(&(source, there))
    }

    /// Returns the outcome for a name of this source. If the name is the first, records `there`. `there` is the
    /// existing file of the name; `None` if the name would be a new file.
    pub fn foresee(&self, source: Id, there: Option<Id>) -> ForeseenName {
        let mut names = locked(&self.first_names);
        match names.entry(source) {
            Entry::Vacant(first) => {
                first.insert(there);
                ForeseenName::First
            }
            Entry::Occupied(first) if *first.get() == there => ForeseenName::Stays,
            Entry::Occupied(_) => ForeseenName::Linked,
        }
    }
}

/// The outcome for a name of a source with several names, in a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeseenName {
    /// The name is the first that the walk meets. Other names will be linked to it.
    First,
    /// The name is already a hard link to the file of the first name.
    Stays,
    /// The name will become a hard link to the file of the first name.
    Linked,
}
