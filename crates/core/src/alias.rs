//! Tests whether a change of the source after a transfer shows in the sink.
//!
//! The test moves real bytes, because splice and vmsplice behave differently in different kernel versions.

use serde::Serialize;

use crate::{Kind, Mechanism, Pair, Unfit, probe, scratch::ScratchSite};

/// The result of the test: the bytes that the sink holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Alias {
    /// The bytes as they were when the call was made.
    Copied,
    /// The bytes written to the source after the call.
    Shared,
}

/// Returns `true` if the test is possible: the source can still be written, and the sink can be read.
pub fn applies(pair: Pair) -> bool {
    matches!(pair.source, Kind::Memory | Kind::File)
        && matches!(pair.sink, Kind::Memory | Kind::File | Kind::Pipe | Kind::Socket)
}

/// Moves a page, overwrites the source, and examines the sink.
pub fn probe(mechanism: &dyn Mechanism, pair: Pair, site: &ScratchSite) -> Result<Alias, Unfit> {
    let (before, after) = (probe::pattern(1), probe::pattern(2));
    let mut scratch = probe::tried(mechanism, pair, site, &before)?;
    let failed = |e| Unfit::because(format!("cannot test whether pages are shared: {e}"));
    scratch.overwrite_source(&after).map_err(failed)?;
    match scratch.arrived(before.len()).map_err(failed)? {
        Some(bytes) if bytes == before => Ok(Alias::Copied),
        Some(bytes) if bytes == after => Ok(Alias::Shared),
        Some(bytes) => {
            let text = format!(
                "cannot test whether pages are shared: the sink received {} bytes that were never sent",
                bytes.len()
            );
            Err(Unfit::because(text))
        }
        None => {
            Err(Unfit::because("cannot test whether pages are shared: the sink cannot be read"))
        }
    }
}
