//! How one side learns that the other has closed its end or died (docs/decisions/005).

use crate::layout::Words;
use crate::link::Link;
use std::time::Duration;

/// How long to wait, after the kernel has said that a peer died, until the last of its threads has
/// stopped: another could still commit in that moment. Bounded, because unmapping much memory can
/// keep a dead process for long. It is no part of finding out that it died.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(5);

/// How long to believe a peer's word that it lives, before the kernel is asked as well. It bounds
/// nothing for an honest peer, whose word the kernel marks; one that lies, or whose list the kernel
/// could not read because it had run out of memory, is found out.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// The same for a side that spins, in looks around.
pub(crate) const LOOKS_BEFORE_RECHECK: u32 = 1 << 16;

/// How the other side went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Died,
    Closed,
}

/// Whether the other side is known to be gone. `thorough` asks the kernel as well, about a peer
/// whose words cannot tell, which costs system calls.
#[inline]
pub(crate) fn gone(theirs: &Words, link: &Link, thorough: bool) -> Option<Gone> {
    let has_died = theirs.has_died();
    if theirs.is_closed() {
        return Some(Gone::Closed);
    }
    if has_died {
        link.await_end(EXIT_GRACE);
        return Some(Gone::Died);
    }
    if thorough && !link.peer_is_alive() {
        // It sets `closed` before its end of the link closes.
        return Some(if theirs.is_closed() { Gone::Closed } else { Gone::Died });
    }
    None
}
