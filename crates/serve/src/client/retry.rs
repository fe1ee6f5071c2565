//! Decides how soon to retry after a temporary error, and for which servers.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use thalweg_core::{Cancelled, quantity};

use super::{
    FetchError, FetchUrl,
    deadline::{CancelCheck, sleep},
};

/// Longest delay. If a server asks for a longer one, thalweg does not retry.
pub const LONGEST: Duration = Duration::from_secs(300);
const FIRST: Duration = Duration::from_millis(500);

/// Returns the pause before the n-th retry since the last received byte, counted from 1; `None`: do not retry.
/// `wish`: the server's Retry-After, which is obeyed up to [`LONGEST`].
pub fn pause(tries: u32, most: u32, wish: Option<Duration>) -> Option<Duration> {
    if tries > most || wish.is_some_and(|wish| wish > LONGEST) {
        return None;
    }
    let doubled = FIRST * 2_u32.saturating_pow(tries.saturating_sub(1).min(6));
    Some(wish.map_or(doubled, |wish| wish.max(FIRST)))
}

/// Reports a temporary error, and sleeps until the retry.
pub fn wait(
    error: &FetchError,
    pause: Duration,
    report: impl Fn(&str),
    check: &CancelCheck<'_>,
) -> Result<(), Cancelled> {
    report(&format!("{error}; retrying in {}", quantity::duration(pause)));
    sleep(pause, check)
}

/// Servers that are retried if a connection fails, because they have answered before. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    servers: Arc<Mutex<BTreeSet<String>>>,
    is_assumed: bool,
}

impl Answered {
    /// Treats every server as if it had answered, because the caller asked for retries.
    pub fn assumed() -> Self {
        Self { is_assumed: true, ..Self::default() }
    }

    /// Records that the servers of these URLs have answered.
    pub(crate) fn note(&self, targets: [&FetchUrl; 2]) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.extend(targets.map(FetchUrl::authority));
    }

    /// Converts the error of a request for `first` into a temporary one, if that server has answered before.
    pub(crate) fn as_temporary(&self, first: &FetchUrl, error: FetchError) -> FetchError {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = self.is_assumed || servers.contains(&first.authority());
        if is_known { error.of_known_server() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_and_servers_are_heard() {
        let seconds = |n| Some(Duration::from_secs_f64(n));
        let pauses: Vec<_> = (1..6).map(|n| pause(n, 4, None)).collect();
        assert_eq!(pauses, [seconds(0.5), seconds(1.0), seconds(2.0), seconds(4.0), None]);
        assert_eq!(pause(1, 4, Some(Duration::from_secs(7))), seconds(7.0));
        assert_eq!(pause(1, 4, Some(Duration::ZERO)), seconds(0.5));
        assert_eq!(pause(1, 4, Some(Duration::from_secs(301))), None);
        assert_eq!(pause(1, 0, None), None);
        assert_eq!(pause(99, 100, None), seconds(32.0));
    }
}
