//! Options and a watcher for tests of fetching.

use std::{sync::Mutex, time::Duration};

use thalweg_core::{Cancelled, Guarantees, Request, atomic_file::Fsync};
use thalweg_serve::client::{
    Answered, BodySettings, Connections, Extra, FetchOptions, FetchProgress, FetchWatcher, Policy,
    Proxies, TlsTrust,
};

/// Returns options without profile and limits, with the certificates of the system.
pub fn options() -> FetchOptions {
    let needs = Guarantees::COPIED;
    FetchOptions {
        trust: TlsTrust::default(),
        channels: None,
        proxies: Proxies::default(),
        extra: Extra::default(),
        way: BodySettings {
            policy: Policy { request: Request::default(), profile: None, needs },
            limit: None,
            limit_each: None,
        },
        stall: Duration::from_secs(60),
        retries: 3,
        answered: Answered::default(),
        connections: Connections::Auto,
        expected: Vec::new(),
        verify: false,
        fsync: Fsync::Auto,
    }
}

/// Keeps the messages, and fails if more bytes are reported than the file has.
#[derive(Default)]
pub struct QuietWatcher(pub Mutex<Vec<String>>);

impl FetchWatcher for QuietWatcher {
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled> {
        assert!(now.size.is_none_or(|size| now.there <= size));
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn report(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}
