//! Tries a mechanism by the real calls on something tiny, and says why it does not work.
//!
//! One probe serves all: a mechanism is opened on each pair it claims and has to deliver a page.

use std::time::Duration;

use crate::{
    Facts, Guarantees, Kind, Mechanism, Pair, Role, Tuning, Unfit,
    exact::{Exactly, Inexact, run_exact},
    scratch::{Scratch, Site, Sockets},
};

/// A page: enough for every call, and it fits into the smallest pipe.
const SOME: usize = 4096;
/// How long a probe waits: scratch ends are ready at once; a mover that waits for a thread or a peer
/// is not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this mechanism can move a page between two ends of this pair's kinds, here and now.
pub fn pair(mechanism: &dyn Mechanism, pair: Pair, site: &Site) -> Result<(), Unfit> {
    let bytes = pattern(1);
    let mut scratch = tried(mechanism, pair, site, &bytes)?;
    // Nothing comes out of /dev/null, so there is nothing to wait for at the other end.
    let expected = if pair.source == Kind::Null { 0 } else { SOME };
    match scratch.arrived(expected) {
        Ok(Some(arrived)) if scratch.source_is_ours() && arrived != bytes => {
            Err(Unfit::because("delivered other bytes than the source has"))
        }
        Ok(_) => Ok(()),
        Err(errno) => {
            Err(Unfit { reason: format!("reading the sink: {errno}"), errno: Some(errno) })
        }
    }
}

/// Every pair a mechanism claims, with the answer for this machine.
pub fn all(mechanism: &dyn Mechanism, site: &Site) -> Vec<(Pair, Result<(), Unfit>)> {
    let info = mechanism.info();
    if info.role == Role::Harness {
        return Vec::new();
    }
    info.pairs.iter().map(|p| (*p, pair(mechanism, *p, site))).collect()
}

/// Bytes that differ from those of another seed in every place.
pub(crate) fn pattern(seed: u8) -> Vec<u8> {
    (0..SOME).map(|n| (n % 251) as u8 ^ seed).collect()
}

/// Moves `bytes` over fresh ends of this pair; a mechanism that wants an internet socket gets one.
pub(crate) fn tried(
    mechanism: &dyn Mechanism,
    pair: Pair,
    site: &Site,
    bytes: &[u8],
) -> Result<Scratch, Unfit> {
    let kinds = (pair.source, pair.sink);
    let mut scratch = Scratch::new(kinds, bytes, site, site.sockets.unwrap_or(Sockets::Unix))?;
    if let Err(unfit) = fits(mechanism, &mut scratch) {
        if site.sockets.is_some() {
            return Err(unfit);
        }
        scratch = Scratch::new(kinds, bytes, site, Sockets::Tcp)?;
        fits(mechanism, &mut scratch).map_err(|_| unfit)?;
    }
    let transfer = scratch.transfer(bytes.len() as u64, Guarantees::SHARED);
    let transfer = transfer.map_err(|e| Unfit::because(format!("scratch ends: {e}")))?;
    let mut mover = mechanism.open(transfer, &Tuning::default())?;
    let mut how = Exactly { paced: false, patience: PATIENCE, watch: &mut () };
    let moved = run_exact(mover.as_mut(), bytes.len() as u64, &mut how);
    drop(mover);
    match moved {
        // A device gives as much as it likes.
        Err(Inexact::Ended { .. }) if !scratch.source_is_ours() => Ok(scratch),
        Err(Inexact::Failed { error, .. }) => Err(error.into()),
        Err(inexact) => Err(inexact.into()),
        Ok(()) => Ok(scratch),
    }
}

fn fits(mechanism: &dyn Mechanism, scratch: &mut Scratch) -> Result<(), Unfit> {
    let transfer = scratch.transfer(SOME as u64, Guarantees::SHARED);
    let transfer = transfer.map_err(|e| Unfit::because(format!("scratch ends: {e}")))?;
    mechanism.fits(&Facts::of(&transfer))
}
