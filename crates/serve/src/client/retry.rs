//! How soon to ask again after what may pass, and of which servers.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{Error, Target};

/// A server that asks for more patience than this is not waited for.
pub const LONGEST: Duration = Duration::from_secs(300);
const FIRST: Duration = Duration::from_millis(500);

/// The pause before the n-th try, counted from 1, since something last came; `None`: no more tries.
/// A server's own wish counts, if it is not beyond all patience.
pub fn pause(tries: u32, most: u32, wish: Option<Duration>) -> Option<Duration> {
    if tries > most || wish.is_some_and(|wish| wish > LONGEST) {
        return None;
    }
    let doubled = FIRST * 2_u32.saturating_pow(tries.saturating_sub(1).min(6));
    Some(wish.map_or(doubled, |wish| wish.max(FIRST)))
}

/// Servers that are worth a retry if no connection can be made: those that have answered. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    servers: Arc<Mutex<BTreeSet<String>>>,
    is_assumed: bool,
}

impl Answered {
    /// Takes every server for one that has answered: the caller asked for retries.
    pub fn assumed() -> Self {
        Self { is_assumed: true, ..Self::default() }
    }

    /// Notes that the servers of these URLs have answered.
    pub(crate) fn note(&self, targets: [&Target; 2]) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.extend(targets.map(Target::authority));
    }

    /// Returns the error of a request that began at `first`, such that it is passing if that server has answered.
    pub(crate) fn judge(&self, first: &Target, error: Error) -> Error {
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
