//! The attributes that a comparison reads and reports.

use thalweg_core::atomic_file::CallFailed;

use super::run::SideFailure;
use crate::{AttributeDifferences, Preserve, holder::Holder, xattrs::EntryXattrs};

/// Returns the names of the attributes that differ. `links`: `true` if the hard links differ.
pub(crate) fn names(differs: AttributeDifferences, links: bool) -> Vec<&'static str> {
    let all = [
        ("mode", differs.mode),
        ("owner", differs.owner),
        ("group", differs.group),
        ("modification time", differs.time),
        ("extended attributes", differs.xattrs),
        ("hard links", links),
    ];
    all.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

/// Returns extended attributes and ACLs.
pub(crate) fn xattrs_of(holder: &Holder<'_>, side: usize) -> Result<EntryXattrs, SideFailure> {
    EntryXattrs::compared(holder, Preserve::all()).map_err(|failure| {
        let CallFailed { call, errno } = failure.into();
        (side, call, errno)
    })
}
