//! What the connections of one worker have in common.

use std::{cell::RefCell, sync::Arc};

use super::{cold::Colds, log::Teller, site::Site, store::Store};
use crate::plans::{Plans, Policy};

/// What an answer is made with.
pub struct Tools {
    pub site: Arc<Site>,
    /// By which the plans were made.
    pub policy: Arc<Policy>,
    pub plans: Plans,
    pub store: RefCell<Store>,
    pub cold: Colds,
    pub teller: Option<Teller>,
    /// What was read last.
    pub buffer: Vec<u8>,
    /// The server is about to end: no connection is kept.
    pub is_ending: bool,
}

impl Tools {
    /// Another profile makes other plans.
    pub fn look_at_policy(&mut self) {
        let policy = self.site.policy();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.policy = policy;
            self.plans.forget();
        }
    }
}
