//! Detects that the peer has closed its end or died (docs/decisions/005).

use crate::layout::SideWords;
use crate::link::Link;
use std::time::Duration;

/// Maximum time to wait for the peer's last thread to stop, after the kernel has marked the peer as dead. Before that,
/// another thread of the peer could still commit a message. The wait has a limit, because a dead process can exist for
/// long while the kernel unmaps its memory. The death is reported at most this much later.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(5);

/// Number of looks ([`SpinTurn::LookAround`](super::wait::spin::SpinTurn)) after which a polling side also asks the
/// kernel if the peer lives. A sleeping side asks after [`LIVENESS`](thalweg_core::cadence::LIVENESS). An honest
/// peer does not need this, because the kernel marks its death. The check detects the death of a peer that wrote false
/// words, and of one with a robust list that the kernel could not read (out of memory).
pub(crate) const LOOKS_BEFORE_RECHECK: u32 = 1 << 16;

/// Why the peer is gone: its process died, or it closed its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Died,
    Closed,
}

/// Returns whether the peer died or closed its end; `None` if neither is known. If `thorough` is `true`, also asks the
/// kernel. This costs system calls, but detects the death of a peer without valid words.
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
        // The peer sets `closed` before it closes the link, so check that word again.
        return Some(if theirs.is_closed() { Gone::Closed } else { Gone::Died });
    }
    None
}
