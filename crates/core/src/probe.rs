//! Tries a mechanism with the real calls on a small transfer, and returns the reason if it fails.
//!
//! All mechanisms share this probe. A mechanism must deliver a page on each pair that it claims to serve.

use crate::{
    Facts, Guarantees, Kind, Mechanism, Pair, Role, Tuning, Unfit,
    cadence::HANG,
    exact::{Exactly, Inexact, run_exact},
    scratch::{Scratch, ScratchSite, Sockets},
};

/// A page. This is enough for every call, and fits into the smallest pipe.
const SOME: usize = 4096;

/// Tests whether this mechanism can move a page between two endpoints of this pair's kinds on this machine.
pub fn pair(mechanism: &dyn Mechanism, pair: Pair, site: &ScratchSite) -> Result<(), Unfit> {
    let bytes = pattern(1);
    let mut scratch = tried(mechanism, pair, site, &bytes)?;
    // /dev/null supplies no bytes, so none can arrive at the sink.
    let expected = if pair.source == Kind::Null { 0 } else { SOME };
    match scratch.arrived(expected) {
        Ok(Some(arrived)) if scratch.source_is_ours() && arrived != bytes => {
            Err(Unfit::because("delivered bytes that differ from those of the source"))
        }
        Ok(_) => Ok(()),
        Err(errno) => {
            Err(Unfit { reason: format!("cannot read the sink: {errno}"), errno: Some(errno) })
        }
    }
}

/// Returns every pair that a mechanism claims, with the result on this machine.
pub fn all(mechanism: &dyn Mechanism, site: &ScratchSite) -> Vec<(Pair, Result<(), Unfit>)> {
    let info = mechanism.info();
    if info.role == Role::Harness {
        return Vec::new();
    }
    info.pairs.iter().map(|p| (*p, pair(mechanism, *p, site))).collect()
}

/// Returns a page of bytes. At every offset, the bytes of two seeds differ.
pub(crate) fn pattern(seed: u8) -> Vec<u8> {
    (0..SOME).map(|n| (n % 251) as u8 ^ seed).collect()
}

/// Moves `bytes` between new endpoints of this pair. A mechanism that requires an internet socket gets one.
pub(crate) fn tried(
    mechanism: &dyn Mechanism,
    pair: Pair,
    site: &ScratchSite,
    bytes: &[u8],
) -> Result<Scratch, Unfit> {
    let new = |sockets| Scratch::new(pair.source, pair.sink, bytes, site, sockets);
    let mut scratch = new(site.sockets.unwrap_or(Sockets::Unix))?;
    if let Err(unfit) = fits(mechanism, &mut scratch) {
        if site.sockets.is_some() {
            return Err(unfit);
        }
        scratch = new(Sockets::Tcp)?;
        fits(mechanism, &mut scratch).map_err(|_| unfit)?;
    }
    let transfer = scratch.transfer(bytes.len() as u64, Guarantees::SHARED);
    let transfer = transfer
        .map_err(|e| Unfit::because(format!("cannot use the endpoints of the test: {e}")))?;
    let mut mover = mechanism.open(transfer, &Tuning::default())?;
    let mut how = Exactly { paced: false, patience: HANG, watch: &mut () };
    let moved = run_exact(mover.as_mut(), bytes.len() as u64, &mut how);
    drop(mover);
    match moved {
        // A device may supply fewer bytes.
        Err(Inexact::Ended { .. }) if !scratch.source_is_ours() => Ok(scratch),
        Err(Inexact::Failed { error, .. }) => Err(error.into()),
        Err(inexact) => Err(inexact.into()),
        Ok(()) => Ok(scratch),
    }
}

fn fits(mechanism: &dyn Mechanism, scratch: &mut Scratch) -> Result<(), Unfit> {
    let transfer = scratch.transfer(SOME as u64, Guarantees::SHARED);
    let transfer = transfer
        .map_err(|e| Unfit::because(format!("cannot use the endpoints of the test: {e}")))?;
    mechanism.fits(&Facts::of(&transfer))
}
