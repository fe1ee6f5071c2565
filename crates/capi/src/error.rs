//! `tw_status` and `tw_error`.

use std::ffi::c_char;
use std::mem::offset_of;

/// `tw_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `TW_OK`
    Ok = 0,
    /// `TW_DIFFER`
    Differ = 1,
    /// `TW_USAGE`
    Usage = 2,
    /// `TW_PARTIAL`
    Partial = 3,
    /// `TW_UNSUPPORTED`
    Unsupported = 4,
    /// `TW_STOPPED`
    Stopped = 5,
    /// `TW_INTERNAL`
    Internal = 6,
}

const MESSAGE: usize = 488;

/// `tw_error`.
#[repr(C)]
#[derive(Debug)]
pub struct TwError {
    status: Status,
    os_error: i32,
    moved: u64,
    message: [c_char; MESSAGE],
}

/// Why a call failed, before it is written into the caller's `tw_error`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: Status,
    pub os_error: i32,
    pub moved: u64,
    pub message: String,
}

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, os_error: 0, moved: 0, message: message.into() }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Status::Usage, message)
    }

    pub fn of_call(status: Status, error: &thalweg_core::Error) -> Self {
        let os_error = error.errno.raw_os_error();
        Self { status, os_error, moved: error.moved, message: error.to_string() }
    }
}

impl TwError {
    /// The failure as C reads it; a message that is too long ends at a character.
    pub(crate) fn of(failure: &Failure) -> Self {
        let mut message = [0; MESSAGE];
        let text = failure.message.replace('\0', " ");
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(MESSAGE - 1)).rev().find(fits).unwrap_or(0);
        for (to, from) in message.iter_mut().zip(text[..end].bytes()) {
            *to = from as c_char;
        }
        Self { status: failure.status, os_error: failure.os_error, moved: failure.moved, message }
    }
}

pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_error", size_of::<TwError>()),
        ("tw_error.moved", offset_of!(TwError, moved)),
        ("tw_error.message", offset_of!(TwError, message)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character_and_ends_with_nul() {
        let error = TwError::of(&Failure::usage("ä".repeat(MESSAGE)));
        let bytes: Vec<u8> = error.message.iter().map(|c| *c as u8).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(end, MESSAGE - 2);
        assert!(std::str::from_utf8(&bytes[..end]).is_ok());
    }
}
