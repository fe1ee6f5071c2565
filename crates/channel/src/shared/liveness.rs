//! Detects that the peer has closed its end or died (docs/decisions/005).

use crate::layout::SideWords;
use crate::link::Link;
use std::time::Duration;

/// Maximum time to wait for the last thread of a peer to stop, after the kernel has marked the peer as dead. Until
/// then, another thread of the peer could still commit. The wait is bounded because unmapping much memory can keep a
/// dead process around for long. The wait delays the report of the death by this time at most.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(5);

/// Number of checks after which a spinning side also asks the kernel if the peer lives. A sleeping side asks after
/// [`LIVENESS`](thalweg_core::cadence::LIVENESS). An honest peer does not need this, because the kernel marks its
/// word. The check finds the death of a peer that wrote false words. It also finds a death if the kernel could not read
/// the peer's robust list (out of memory).
pub(crate) const LOOKS_BEFORE_RECHECK: u32 = 1 << 16;

/// The end of the peer: its process died, or it closed its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Died,
    Closed,
}

/// Returns how the peer ended, if it is known to have ended. If `thorough` is `true`, this function also asks the
/// kernel. That costs system calls, but detects the death of a peer without valid words.
#[inline]
pub(crate) fn gone(theirs: &SideWords, link: &Link, thorough: bool) -> Option<Gone> {
    let has_died = theirs.has_died();
    if theirs.is_closed() {
        return Some(Gone::Closed);
    }
    if has_died {
        link.await_end(EXIT_GRACE);
        return Some(Gone::Died);
    }
    if thorough && !link.peer_is_alive() {
        // The peer sets `closed` before it closes its end of the link.
        return Some(if theirs.is_closed() { Gone::Closed } else { Gone::Died });
    }
    None
}
