//! Receives the body of a response into memory.

use std::{cell::Cell, os::fd::AsFd};

use rustix::fs::{MemfdFlags, memfd_create};
use thalweg_core::{Cancelled, End, Report, atomic_file::failed, quantity};
use thalweg_sys::io;

use super::{
    FetchError, FetchOptions,
    body::ResponseBody,
    connect::FetchConnection,
    deadline::{CancelCheck, NetDeadline},
    head::ResponseHead,
};

/// Receives a body of at most `most` bytes. `what`: its name for messages.
pub fn body_in_memory(
    connection: &mut FetchConnection,
    head: &ResponseHead,
    most: u64,
    what: &str,
    options: &FetchOptions,
    check: &CancelCheck<'_>,
) -> Result<Vec<u8>, FetchError> {
    let memory = memfd_create(c"body", MemfdFlags::CLOEXEC).map_err(failed("memfd_create"))?;
    let is_too_long = Cell::new(false);
    let mut note = |moved: u64| -> Result<(), Cancelled> {
        is_too_long.set(moved > most);
        if is_too_long.get() { Err(Cancelled) } else { check() }
    };
    let end = End { at: Some(0), ..End::of(memory.as_fd()).map_err(failed("fstat"))? };
    let body = ResponseBody {
        connection,
        deadline: NetDeadline { limit: options.stall, check },
        way: &options.way,
        end,
        note: &mut note,
        report: &mut Report::default(),
        plans: None,
    };
    let came = body.bring(head.framing()?, None);
    if is_too_long.get() {
        let most = quantity::exact(most);
        return Err(FetchError::broken(format!("{what} is larger than {most}")));
    }
    let mut bytes = vec![0; usize::try_from(came?).unwrap_or(usize::MAX)];
    io::pread_full(&memory, &mut bytes, 0).map_err(failed("pread"))?;
    Ok(bytes)
}
