//! State shared by the connections of one worker.

use std::{cell::RefCell, sync::Arc};

use super::{log::LogQueue, readahead::Readahead, site::ServedSite, store::Store};
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
    /// `true` if the server is shutting down: connections are not kept open.
    pub is_ending: bool,
}

impl Tools {
    /// Discards the plans if the profile has changed.
    pub fn look_at_policy(&mut self) {
        let policy = self.site.policy();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.policy = policy;
            self.plans.forget();
        }
    }
}
