//! The shared state of a copy.

use crate::{
    copy::{
        links::LinkTable,
        plans::{contest::Contests, pair::DevicePairs},
        run::CopyRun,
        task::CopyTask,
    },
    queue::TaskQueue,
};

/// State shared by all workers of one copy.
pub(crate) struct CopyShared<'r> {
    pub run: CopyRun<'r>,
    pub queue: TaskQueue<CopyTask>,
    pub links: LinkTable,
    pub pairs: DevicePairs,
    pub contests: Contests,
}

impl<'r> CopyShared<'r> {
    pub fn new(run: CopyRun<'r>) -> Self {
        let links = LinkTable::new(run.options);
        let (queue, pairs, contests) = Default::default();
        Self { run, queue, links, pairs, contests }
    }
}
