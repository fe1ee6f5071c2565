//! The C library: the baseline that every other kernel has to beat.

use crate::c_library::{copy, fill, move_};
use crate::row::{ALWAYS, Fill, Kernel};

pub const COPY: Kernel = Kernel {
    name: "libc",
    summary: "memcpy and memmove of the C library",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
};

pub const FILL: Fill =
    Fill { name: "libc", summary: "memset of the C library", is_available: ALWAYS, fill };
