//! State shared by the connections of one worker.

use std::{cell::RefCell, os::fd::OwnedFd, sync::Arc};

use super::{
    helper_pool::HelperPool,
    log::LogQueue,
    mailbox::Mailbox,
    readahead::{Disks, Readahead},
    site::ServedSite,
    store::Store,
};
use crate::plans::{Plans, Policy};

/// Resources for answering requests.
pub struct Tools {
    pub site: Arc<ServedSite>,
    /// The policy by which `plans` were made.
    pub policy: Arc<Policy>,
    pub plans: Plans,
    pub store: RefCell<Store>,
    pub readahead: Readahead,
    pub log_queue: Option<LogQueue>,
    /// Receive buffer.
    pub buffer: Vec<u8>,
    /// `true` if the server is shutting down, so that connections are not kept open.
    pub is_ending: bool,
}

/// Size of a worker's read buffer in bytes: the number of bytes of further requests that a connection may hold while its
/// client does not read the first answer.
const BUFFER: usize = 8 << 10;

impl Tools {
    /// Creates the resources of a worker. `wake`: the eventfd on which it waits.
    pub fn new(
        site: &Arc<ServedSite>,
        helpers: &Arc<HelperPool>,
        wake: &Arc<OwnedFd>,
        log_queue: Option<LogQueue>,
    ) -> Self {
        Self {
            site: Arc::clone(site),
            policy: site.policy(),
            plans: Plans::default(),
            store: RefCell::default(),
            readahead: Readahead {
                disks: Disks::default(),
                helpers: Arc::clone(helpers),
                mailbox: Arc::new(Mailbox::new(Arc::clone(wake))),
                token: 0,
                client: None,
                count: 0,
            },
            log_queue,
            buffer: vec![0; BUFFER],
            is_ending: false,
        }
    }

    /// Returns `true` if no file is kept open and no directory list is cached.
    pub fn caches_nothing(&self) -> bool {
        self.store.borrow().has_no_file() && self.site.names.is_empty()
    }

    /// Discards the plans if the profile has changed.
    pub fn look_at_policy(&mut self) {
        let policy = self.site.policy();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.policy = policy;
            self.plans.forget();
        }
    }
}
