//! `tw_status` and `tw_error`.

use std::borrow::Cow;
use std::ffi::c_char;
use thalweg_core::failed::Undone;
use thalweg_sys::Errno;

/// `tw_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwStatus {
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
    /// `TW_CLOSED`
    Closed = 7,
    /// `TW_PEER_DIED`
    PeerDied = 8,
    /// `TW_TIMEOUT`
    Timeout = 9,
    /// `TW_TOO_LARGE`
    TooLarge = 10,
    /// `TW_CORRUPT`
    Corrupt = 11,
    /// `TW_NOT_PERMITTED`
    NotPermitted = 12,
    /// `TW_SYSTEM`
    System = 13,
}

const MESSAGE: usize = 480;

/// `tw_error`.
#[repr(C)]
#[derive(Debug)]
pub struct TwError {
    status: TwStatus,
    os_error: i32,
    moved: u64,
    message: [c_char; MESSAGE],
    partial: u64,
}

/// The description of a failure, before it is written to the caller's `tw_error`.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub status: TwStatus,
    pub os_error: i32,
    pub moved: u64,
    pub partial: u64,
    /// Frequent failures borrow a constant message, to avoid an allocation for a text that is often
    /// not read.
    pub message: Cow<'static, str>,
}

impl CallFailure {
    pub fn new(status: TwStatus, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, os_error: 0, moved: 0, partial: 0, message: message.into() }
    }

    pub fn usage(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(TwStatus::Usage, message)
    }

    pub fn timeout() -> Self {
        Self::new(TwStatus::Timeout, "timed out; nothing is lost, the call can be repeated")
    }

    /// Builds the failure of a system call before which no bytes were moved.
    pub fn system(call: &str, errno: Errno) -> Self {
        let message = Undone { call, errno }.to_string();
        Self { os_error: errno.raw_os_error(), ..Self::new(TwStatus::System, message) }
    }

    pub fn of_call(status: TwStatus, error: &thalweg_core::Error) -> Self {
        let os_error = error.errno.raw_os_error();
        Self { os_error, moved: error.moved, ..Self::new(status, error.to_string()) }
    }

    /// Appends a hint to the message.
    pub fn hint(mut self, what: &str) -> Self {
        self.message.to_mut().push_str(what);
        self
    }
}

impl From<thalweg_channel::Error> for CallFailure {
    fn from(error: thalweg_channel::Error) -> Self {
        use thalweg_channel::Error;
        match error {
            Error::Timeout => Self::timeout(),
            Error::System { call, errno } => Self::system(call, errno),
            Error::Meeting { errno, .. } => {
                let failure = Self::new(TwStatus::System, error.to_string());
                Self { os_error: errno.raw_os_error(), ..failure }
            }
            Error::PeerDied { delivered, partial } => {
                let failure = Self::new(TwStatus::PeerDied, error.to_string());
                Self { moved: delivered, partial, ..failure }
            }
            Error::Closed { delivered } => {
                Self { moved: delivered, ..Self::new(TwStatus::Closed, error.to_string()) }
            }
            // The message of the Rust error names a Rust function to use instead, which has another
            // name in C.
            Error::TooLarge { len, most, .. } => {
                let message = format!("{len} bytes are too large: at most {most}");
                Self::new(TwStatus::TooLarge, message)
            }
            Error::Corrupt { .. } => Self::new(TwStatus::Corrupt, error.to_string()),
            Error::NotPermitted { .. } | Error::Forked { .. } => {
                Self::new(TwStatus::NotPermitted, error.to_string())
            }
            other => Self::new(TwStatus::Internal, other.to_string()),
        }
    }
}

impl TwError {
    /// Converts a failure for C. Truncates a message that is too long, at a character boundary.
    pub(crate) fn of(failure: &CallFailure) -> Self {
        let mut message = [0; MESSAGE];
        let text = &failure.message;
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(MESSAGE - 1)).rev().find(fits).unwrap_or(0);
        for (to, from) in message.iter_mut().zip(text[..end].bytes()) {
            *to = if from == 0 { b' ' } else { from } as c_char;
        }
        Self {
            status: failure.status,
            os_error: failure.os_error,
            moved: failure.moved,
            message,
            partial: failure.partial,
        }
    }
}

#[cfg(test)]
pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_error", size_of::<TwError>()),
        ("tw_error.moved", std::mem::offset_of!(TwError, moved)),
        ("tw_error.message", std::mem::offset_of!(TwError, message)),
        ("tw_error.partial", std::mem::offset_of!(TwError, partial)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character_and_ends_with_nul() {
        let error = TwError::of(&CallFailure::usage("ä".repeat(MESSAGE)));
        let bytes: Vec<u8> = error.message.iter().map(|c| *c as u8).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(end, MESSAGE - 2);
        assert!(std::str::from_utf8(&bytes[..end]).is_ok());
    }

    #[test]
    fn a_program_built_before_there_was_a_partial_count_reads_the_rest_where_it_was() {
        assert_eq!(size_of::<TwError>(), 504);
        assert_eq!(std::mem::offset_of!(TwError, message), 16);
    }

    #[test]
    fn errors_of_a_channel_keep_their_counts() {
        let died = thalweg_channel::Error::PeerDied { delivered: 3, partial: 7 };
        let failure = CallFailure::from(died);
        assert_eq!((failure.status, failure.moved, failure.partial), (TwStatus::PeerDied, 3, 7));
        let path = "/run/quotes".into();
        let call = thalweg_channel::Error::Meeting { call: "connect", path, errno: Errno::NOENT };
        let failure = CallFailure::from(call);
        assert_eq!(failure.os_error, Errno::NOENT.raw_os_error());
        assert!(
            failure.message.starts_with("cannot connect to '/run/quotes': no such file"),
            "{}",
            failure.message
        );
    }
}
