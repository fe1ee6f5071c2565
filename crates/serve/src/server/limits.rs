//! Send rate limits: of all answers together, and of each connection.

use thalweg_core::rate_limit::RateLimit;

/// The rate limits that apply to one connection.
#[derive(Clone, Copy)]
pub struct ConnectionLimits<'a> {
    /// The limit of the whole site.
    pub of_all: Option<&'a RateLimit>,
    /// The limit of this connection.
    pub own: Option<&'a RateLimit>,
}

impl ConnectionLimits<'_> {
    fn each(&self) -> impl Iterator<Item = &RateLimit> {
        self.of_all.into_iter().chain(self.own)
    }

    /// Returns `true` if bytes may be sent now.
    pub fn are_open(&self) -> bool {
        self.each().all(RateLimit::is_open)
    }

    /// Returns the number of bytes that may be sent in one step, at most `most`.
    pub fn step(&self, most: u64) -> u64 {
        self.each().fold(most, |step, limit| limit.step().min(step))
    }

    /// Records that `bytes` bytes were sent.
    pub fn spend(&self, bytes: u64) {
        self.each().for_each(|limit| {
            limit.spend(bytes);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that close a limit of 1000 bytes per second for longer than a test.
    const MUCH: u64 = 1 << 40;

    #[test]
    fn a_step_is_that_of_the_narrowest_limit() {
        let (wide, narrow) = (RateLimit::new(10_000), RateLimit::new(1000));
        let step = |of_all, own| ConnectionLimits { of_all, own }.step(5000);
        assert_eq!(step(None, None), 5000);
        assert_eq!(step(Some(&wide), None), 1000);
        assert_eq!(step(None, Some(&narrow)), 100);
        assert_eq!(step(Some(&wide), Some(&narrow)), 100);
        assert_eq!(step(Some(&narrow), Some(&wide)), 100);
        assert_eq!(step(Some(&RateLimit::new(u64::MAX)), None), 5000);
    }

    #[test]
    fn what_one_connection_sends_closes_its_own_limit_and_no_others() {
        let all = RateLimit::new(u64::MAX);
        let (one, other) = (RateLimit::new(1000), RateLimit::new(1000));
        let of = |own| ConnectionLimits { of_all: Some(&all), own: Some(own) };
        of(&one).spend(MUCH);
        // `all` allows more than `MUCH` bytes per second, so only the limit of this connection is
        // closed.
        assert!(!of(&one).are_open() && !one.is_open());
        assert!(other.is_open() && ConnectionLimits { of_all: None, own: Some(&other) }.are_open());
    }

    #[test]
    fn what_one_connection_sends_closes_the_limit_of_all() {
        let all = RateLimit::new(1000);
        let (one, other) = (RateLimit::new(u64::MAX), RateLimit::new(u64::MAX));
        let of = |own| ConnectionLimits { of_all: Some(&all), own: Some(own) };
        assert!(of(&other).are_open());
        of(&one).spend(MUCH);
        assert!(!of(&one).are_open() && !of(&other).are_open());
        assert!(!ConnectionLimits { of_all: Some(&all), own: None }.are_open());
        assert!(ConnectionLimits { of_all: None, own: None }.are_open());
    }
}
