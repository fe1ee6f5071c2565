//! Describes which mechanisms `thalweg serve` will use for which sizes; printed at start.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{os::fd::AsFd, path::Path};

use thalweg_core::{
    End, EndFacts, Facts, Kind, Profile, Request, plan::bands, profile::day, quantity::bytes,
};
use thalweg_serve::server::ONE_SEND;

use crate::args::MethodArgs;

/// Returns text such as `methods for files above 64.0 KiB: read-write up to 3.0 MiB, sendfile above (measured
/// 2026-11-24)`.
/// Returns `None` if the root cannot be opened.
pub fn words(
    root: &Path,
    is_unix: bool,
    choice: &MethodArgs,
    profile: Option<&Profile>,
) -> Option<String> {
    // Without `O_PATH`, opening a FIFO would wait for a writer.
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // For a directory the facts are those of the files in it.
    let file = End { fd: root.as_fd(), kind: Kind::File, at: Some(0) };
    let source = EndFacts::of(&file).of_any_file();
    let socket = if is_unix { "socket:unix" } else { "socket:inet" };
    let facts =
        Facts { source, sink: EndFacts::of_key(socket, "")?, len: None, needs: choice.needs() };
    let request = Request { stepwise: true, ..choice.request() };
    let bands = bands(ONE_SEND as u64 + 1, &facts, &request, profile);
    let chosen = bands.iter().filter_map(|(upto, plan)| Some((*upto, plan.chosen()?)));
    let mut parts: Vec<(u64, &str)> = Vec::new();
    for (upto, verdict) in chosen.clone() {
        match parts.last_mut() {
            Some((last, name)) if *name == verdict.mechanism => *last = upto,
            _ => parts.push((upto, verdict.mechanism)),
        }
    }
    let measured = chosen.filter_map(|(_, verdict)| verdict.evidence.as_ref()).map(|e| day(&e.at));
    let measured = measured.max().map_or("not measured".to_owned(), |at| format!("measured {at}"));
    let text = |(n, (upto, name)): (usize, &(u64, &str))| match (n + 1 == parts.len(), n) {
        (true, 0) => (*name).to_owned(),
        (true, _) => format!("{name} above"),
        (false, _) => format!("{name} up to {}", bytes(*upto)),
    };
    let list: Vec<String> = parts.iter().enumerate().map(text).collect();
    let least = bytes(ONE_SEND as u64);
    let list = list.join(", ");
    (!list.is_empty()).then(|| format!("methods for files above {least}: {list} ({measured})"))
}
