//! What a fetch is told, but for what its test is about.

use std::time::Duration;

use thalweg_core::{Guarantees, Request, atomic_file::Fsync};
use thalweg_serve::client::{Connections, Extra, Options, Policy, Proxies, Trust, Way};

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
        patience: Duration::from_secs(60),
        retries: 3,
        connections: Connections::Auto,
        expected: Vec::new(),
        verify: false,
        fsync: Fsync::Auto,
    }
}
