//! What every program uses: the C library. The row every other one has to beat.

use crate::c_library::{copy, fill, move_};
use crate::row::{ALWAYS, Fill, Head, Kernel};
use crate::tuned::first;

pub const COPY: Kernel = Kernel {
    name: "libc",
    summary: "memcpy and memmove of the C library",
    is_available: ALWAYS,
    copy,
    move_: Some(move_),
    head: Some(Head { least: 0, copy: first_copy, move_: Some(first_move) }),
};

pub const FILL: Fill =
    Fill { name: "libc", summary: "memset of the C library", is_available: ALWAYS, fill };

first!(first_copy, copy, copy_beyond);
first!(first_move, move_, move_beyond);
