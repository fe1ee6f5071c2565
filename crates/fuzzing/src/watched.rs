//! Options and watchers for fetches from a scripted server.

use std::{net::SocketAddr, time::Duration};

use thalweg_core::{Cancelled, Guarantees, Request, atomic_file::Fsync};
use thalweg_serve::client::{
    Answered, BodySettings, Connections, Extra, FetchOptions, FetchProgress, FetchWatcher, Policy,
    Proxies, TlsTrust, tree::TreeWatcher,
};
use thalweg_tree::Total;

/// Returns options without retries, for a client that uses `proxy`.
pub fn options(proxy: Option<SocketAddr>) -> FetchOptions {
    let needs = Guarantees::COPIED;
    let of_proxy =
        |name: &str| proxy.filter(|_| name.ends_with("s_proxy") || name.ends_with("p_proxy"));
    let proxies = Proxies::of_environment(|name| {
        of_proxy(name).map(|address| format!("http://u:p@{address}"))
    });
    FetchOptions {
        trust: TlsTrust::default(),
        channels: None,
        proxies: proxies.expect("addresses of proxies"),
        extra: Extra::default(),
        way: BodySettings {
            policy: Policy { request: Request::default(), profile: None, needs },
            limit: None,
            limit_each: Some(1 << 40),
        },
        stall: Duration::from_secs(1),
        retries: 0,
        answered: Answered::default(),
        connections: Connections::Auto,
        expected: Vec::new(),
        verify: false,
        fsync: Fsync::Never,
    }
}

/// Never cancels. Panics if more bytes are reported than the file has.
pub struct Watched;

impl FetchWatcher for Watched {
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled> {
        assert!(now.size.is_none_or(|size| now.there <= size));
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn report(&self, _: &str) {}
}

impl TreeWatcher for Watched {
    fn total(&self, _: Total) {}

    fn progress(&self, _: thalweg_tree::Progress) -> Result<(), Cancelled> {
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn report(&self, _: &str) {}
}
