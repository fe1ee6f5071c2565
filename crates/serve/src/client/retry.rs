//! How soon to ask again after what may pass.

use std::time::Duration;

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
