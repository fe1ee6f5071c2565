//! Reasons why an operation or a wait did not succeed.

use super::liveness::Gone;
use crate::error::Error;
use thalweg_core::Unfit;
use thalweg_sys::Errno;

#[derive(Debug)]
pub(crate) enum WaitStop {
    Gone(Gone),
    /// The caller's deadline passed.
    Late,
    /// The caller's `stop` function requested the end of the wait.
    Interrupted,
    /// The mechanism does not work here or for this buffer. Another mechanism may work.
    Refused(Unfit),
    Failed(Error),
}

impl From<Error> for WaitStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl WaitStop {
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Failed(Error::corrupt(what))
    }

    /// Builds the error for a peer that sent `heard` where the protocol requires `due`.
    pub fn unexpected(heard: &str, due: &str) -> Self {
        Self::corrupt(format!("expected {due}, got {heard}"))
    }

    pub fn refused(call: &'static str, errno: Errno) -> Self {
        Self::Refused(unfit(call, errno))
    }

    /// Builds the reason from a refusal that the peer sent. Ignores `errno` if it is not a valid
    /// errno, because the peer can send any number.
    pub fn told(what: &'static str, errno: u64) -> Self {
        match i32::try_from(errno) {
            Ok(errno @ 1..4096) => Self::refused(what, Errno::from_raw_os_error(errno)),
            _ => Self::Refused(Unfit::because(what)),
        }
    }

    /// Converts the reason into the caller's error. `delivered` is the number of messages or bytes
    /// that arrived before.
    pub fn into_error(self, delivered: u64) -> Error {
        match self {
            Self::Gone(Gone::Died) => Error::PeerDied { delivered, partial: 0 },
            Self::Gone(Gone::Closed) => Error::Closed { delivered },
            Self::Late => Error::Timeout,
            Self::Interrupted => Error::System { call: "poll", errno: Errno::INTR },
            Self::Refused(why) => Error::not_permitted(why.reason),
            Self::Failed(error) => error,
        }
    }
}

/// Converts a failed call into an [`Unfit`].
pub(crate) fn unfit(call: &str, errno: Errno) -> Unfit {
    let reason = format!("{call}: {}", thalweg_core::error::errno_name(errno));
    Unfit { reason, errno: Some(errno) }
}
