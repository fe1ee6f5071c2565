//! The version of a server at the other end of a byte stream, and the file system that it lists.

use thalweg_tree::sync::may_be_identity;

use super::{FetchError, head::ResponseHead};
use crate::manifest::{FORMAT, PEER_HEADER, SOURCE_HEADER};

/// Returns the identity of the file system of the listed directory. A text of another form is ignored, because the text
/// is stored in the state file and compared in a later run.
pub fn source_of(head: &ResponseHead) -> Option<String> {
    head.get(SOURCE_HEADER).filter(|text| may_be_identity(text)).map(str::to_owned)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_plain_text_identifies_the_source() {
        let source = |header: &str| {
            let head = format!("HTTP/1.1 200 OK\r\n{header}\r\n");
            source_of(&ResponseHead::parse(head.as_bytes()).unwrap().unwrap().0)
        };
        let longest = "a".repeat(64);
        for good in ["ef53-1c2d3e4f", "0-0", &longest] {
            assert_eq!(source(&format!("Thalweg-Source: {good}\r\n")).as_deref(), Some(good));
        }
        // An older server does not send the header.
        assert_eq!(source(""), None);
        for wrong in ["", "a b", "a\tb", "a/b", "a\r\n b", "é", &"a".repeat(65)] {
            assert_eq!(source(&format!("Thalweg-Source: {wrong}\r\n")), None, "{wrong:?}");
        }
    }
}
