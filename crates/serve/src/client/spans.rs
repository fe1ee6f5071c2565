//! Assigns the bytes of a file to connections. A connection without a span takes the largest unassigned one, or the
//! second half of the largest rest of another connection.

use thalweg_tree::Ranges;

use crate::http::range::ByteRange;

/// The bytes assigned to a connection. The bytes before `at` have been received; `to` is the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    owner: usize,
    at: u64,
    to: u64,
    /// The connection from which this span was split. That connection keeps the bytes until the server has
    /// confirmed this span.
    victim: Option<usize>,
}

/// The spans of one file.
#[derive(Debug)]
pub struct Spans {
    size: u64,
    spans: Vec<Span>,
}

impl Spans {
    /// Creates the state for `size` bytes, all unassigned.
    pub fn of(size: u64) -> Self {
        Self { size, spans: Vec::new() }
    }

    /// Assigns a span to a connection that has none. Returns `None` if nothing is left, or if each half of the
    /// largest rest would have fewer than `least` bytes.
    pub fn claim(&mut self, owner: usize, done: &Ranges, least: u64) -> Option<ByteRange> {
        if let Some(span) = self.free(done) {
            self.take(owner, span);
            return Some(span);
        }
        self.split(owner, least)
    }

    /// Assigns this span to a connection that has none.
    pub fn take(&mut self, owner: usize, span: ByteRange) {
        self.spans.push(Span { owner, at: span.from, to: span.to, victim: None });
    }

    /// Returns the largest range of bytes that are neither present nor assigned.
    fn free(&self, done: &Ranges) -> Option<ByteRange> {
        let mut taken = done.clone();
        self.spans.iter().for_each(|span| taken.add(span.at, span.to));
        let gaps = taken.gaps(self.size).into_iter().map(|(from, to)| ByteRange { from, to });
        gaps.max_by_key(|gap| gap.len())
    }

    fn split(&mut self, owner: usize, least: u64) -> Option<ByteRange> {
        let rests = self.spans.iter().filter(|span| span.victim.is_none());
        let rests = rests.map(|span| (span.owner, span.at, self.kept(span)));
        let (victim, at, to) = rests.max_by_key(|(_, at, to)| to.saturating_sub(*at))?;
        let half = to.saturating_sub(at) / 2;
        if half < least.max(1) {
            return None;
        }
        self.spans.push(Span { owner, at: to - half, to, victim: Some(victim) });
        Some(ByteRange { from: to - half, to })
    }

    /// Returns the end that a span would have if all its splits were confirmed.
    fn kept(&self, span: &Span) -> u64 {
        let asking = self.spans.iter().filter(|other| other.victim == Some(span.owner));
        asking.map(|other| other.at).fold(span.to, u64::min)
    }

    /// Confirms a split span, because the server has accepted the request for it. The span from which it was split
    /// loses these bytes.
    pub fn confirm(&mut self, owner: usize) {
        let Some(own) = self.spans.iter_mut().find(|span| span.owner == owner) else { return };
        let (from, victim) = (own.at, own.victim.take());
        if let Some(victim) = self.spans.iter_mut().find(|span| Some(span.owner) == victim) {
            victim.to = victim.to.min(from.max(victim.at));
        }
    }

    /// Records that the connection has reached offset `at`. Returns `true` if that is the end of its span, which a
    /// split may have moved.
    pub fn advance(&mut self, owner: usize, at: u64) -> bool {
        let span = self.spans.iter_mut().find(|span| span.owner == owner);
        span.is_none_or(|span| {
            span.at = at.clamp(span.at, span.to);
            at >= span.to
        })
    }

    /// Ends the connection's span. Its missing bytes become unassigned.
    pub fn release(&mut self, owner: usize) {
        self.spans.retain(|span| span.owner != owner);
        for asking in self.spans.iter_mut().filter(|span| span.victim == Some(owner)) {
            asking.victim = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(from: u64, to: u64) -> ByteRange {
        ByteRange { from, to }
    }

    #[test]
    fn the_largest_rest_is_split_and_what_is_given_up_is_taken_first() {
        let (mut spans, mut done) = (Spans::of(100), Ranges::default());
        assert_eq!(spans.claim(0, &done, 10), Some(range(0, 100)));
        done.add(0, 20);
        assert!(!spans.advance(0, 20));
        assert_eq!(spans.claim(1, &done, 10), Some(range(60, 100)));
        // The first connection keeps the span until the server confirms the second request.
        assert_eq!(spans.claim(2, &done, 10), Some(range(40, 60)));
        spans.release(2);
        assert!(!spans.advance(0, 59));
        spans.confirm(1);
        assert!(spans.advance(0, 60));
        spans.release(1);
        done.add(0, 60);
        assert_eq!(spans.claim(3, &done, 10), Some(range(60, 100)));
        assert_eq!(spans.claim(4, &done, 90), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_and_goes_every_byte_is_brought_once_a_span_is_and_none_is_lost(
            size in 1_u64..500,
            steps in prop::collection::vec((0_usize..4, 0_u64..60, any::<bool>()), 0..200),
        ) {
            let (mut spans, mut done) = (Spans::of(size), Ranges::default());
            let mut places: [Option<u64>; 4] = [None; 4];
            for (owner, bytes, breaks) in steps {
                match places[owner] {
                    None => {
                        places[owner] = spans.claim(owner, &done, 3).map(|span| span.from);
                        if bytes % 2 == 0 {
                            spans.confirm(owner);
                        } else {
                            spans.release(owner);
                            places[owner] = None;
                        }
                    }
                    Some(_) if breaks => {
                        spans.release(owner);
                        places[owner] = None;
                    }
                    Some(at) => {
                        // A read returns all that the socket holds, also beyond the end of the span, but not beyond
                        // the file's.
                        let to = (at + bytes).min(size);
                        done.add(at, to);
                        places[owner] = Some(to);
                        if spans.advance(owner, to) {
                            spans.release(owner);
                            places[owner] = None;
                        }
                    }
                }
            }
            // A single connection then completes the file.
            (0..4).for_each(|owner| spans.release(owner));
            while let Some(ByteRange { from, to }) = spans.claim(9, &done, u64::MAX) {
                prop_assert!(from < to && to <= size);
                done.add(from, to);
                prop_assert!(spans.advance(9, to));
                spans.release(9);
            }
            prop_assert_eq!(done, Ranges::up_to(size));
        }
    }
}
