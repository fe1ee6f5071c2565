//! The version of a server at the other end of a byte stream.

use super::{FetchError, head::ResponseHead};
use crate::manifest::{FORMAT, PEER_HEADER};

/// Checks that the server's list has a format that this program reads. `name`: the server, for messages.
pub fn check_format(head: &ResponseHead, name: &str) -> Result<(), FetchError> {
    let own = env!("CARGO_PKG_VERSION");
    let Some(announced) = head.get(PEER_HEADER) else {
        let why = format!(
            "{name} did not announce its version of thalweg; install thalweg {own} on both machines"
        );
        return Err(FetchError::Unsupported(why));
    };
    let (version, format) = announced.split_once("; format=").unwrap_or((announced, ""));
    if format.parse() == Ok(FORMAT) {
        return Ok(());
    }
    let (version, format) = (thalweg_core::shown(version), thalweg_core::shown(format));
    Err(FetchError::Unsupported(format!(
        "{name} runs thalweg {version} (format {format}), this is thalweg {own} (format {FORMAT}); install the same \
         version on both machines"
    )))
}
