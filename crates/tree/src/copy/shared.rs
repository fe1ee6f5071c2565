//! The shared state of a copy.

use crate::{
    copy::{
        links::Links,
        plans::{contest::Contests, pair::Pairs},
        run::Run,
        task::Task,
    },
    queue::Queue,
};

/// State shared by all workers of one copy.
pub(crate) struct CopyShared<'r> {
    pub run: Run<'r>,
    pub queue: Queue<Task>,
    pub links: Links,
    pub pairs: Pairs,
    pub contests: Contests,
}

impl<'r> CopyShared<'r> {
    pub fn new(run: Run<'r>) -> Self {
        let links = Links::new(run.options);
        let (queue, pairs, contests) = Default::default();
        Self { run, queue, links, pairs, contests }
    }
}
