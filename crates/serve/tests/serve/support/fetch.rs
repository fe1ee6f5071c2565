//! Options and a watcher for tests of fetching.

use std::{sync::Mutex, time::Duration};

use thalweg_core::{Cancelled, Guarantees, Request, atomic_file::Fsync};
use thalweg_serve::client::{
    Answered, Connections, Extra, Options, Policy, Progress, Proxies, Trust, Watcher, Way,
};

/// Nobody is trusted, nothing measured, nothing limited.
pub fn options() -> Options {
    let needs = Guarantees::COPIED;
    Options {
        trust: Trust::default(),
        proxies: Proxies::default(),
        extra: Extra::default(),
        way: Way {
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

/// Keeps the news, and fails if more has come than the file has.
#[derive(Default)]
pub struct Quiet(pub Mutex<Vec<String>>);

impl Watcher for Quiet {
    fn progress(&self, now: Progress) -> Result<(), Cancelled> {
        assert!(now.size.is_none_or(|size| now.there <= size));
        Ok(())
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn tell(&self, news: &str) {
        self.0.lock().unwrap().push(news.to_owned());
    }
}
