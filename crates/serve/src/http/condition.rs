//! Evaluates conditional requests (RFC 9110, 13): may the server send 304, 412, the whole file or a range?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::head::RequestHead;

/// Entity tag and modification time that identify one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator {
    /// Quoted. Starts with `W/` if the file could still change without a change of the tag.
    pub etag: String,
    /// Rounded down to whole seconds.
    pub modified: Option<SystemTime>,
    /// `true` if the second of `modified` has passed, so that a later change must produce another time.
    pub is_settled: bool,
}

/// Result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// Send the content; honour `Range` only if `ranges` is `true`.
    Content { ranges: bool },
    /// Send 304: the client already has this version.
    NotModified,
    /// Send 412: the client requires another version, or that the file does not exist.
    Failed,
}

impl Validator {
    /// Evaluates the conditions in the order of RFC 9110, 13.2.2.
    pub fn evaluate(&self, head: &RequestHead) -> ConditionOutcome {
        let unmodified = match (&head.if_match, date(head.if_unmodified_since.as_ref())) {
            (Some(tags), _) => self.is_listed(tags, true),
            (None, Some(since)) => self.modified.is_none_or(|modified| modified <= since),
            (None, None) => true,
        };
        if !unmodified {
            return ConditionOutcome::Failed;
        }
        let has_it = match (&head.if_none_match, date(head.if_modified_since.as_ref())) {
            (Some(tags), _) => self.is_listed(tags, false),
            (None, Some(since)) => self.modified.is_some_and(|modified| modified <= since),
            (None, None) => false,
        };
        if has_it {
            return ConditionOutcome::NotModified;
        }
        ConditionOutcome::Content {
            ranges: head.if_range.as_ref().is_none_or(|known| self.is(known)),
        }
    }

    fn is_weak(&self) -> bool {
        self.etag.starts_with("W/")
    }

    /// Returns `true` if a tag or date of `If-Range` certainly identifies this version (strong comparison).
    fn is(&self, known: &str) -> bool {
        if self.is_weak() {
            return false;
        }
        if known.starts_with('"') {
            return known == self.etag;
        }
        self.is_settled && self.modified.is_some() && date(Some(&known.to_owned())) == self.modified
    }

    /// Returns `true` if a list of tags contains this one. If `surely` is `true`, weak tags do not match.
    fn is_listed(&self, tags: &str, surely: bool) -> bool {
        let own = self.etag.trim_start_matches("W/");
        let is_own = |tag: &str| {
            let weak = tag.starts_with("W/") || self.is_weak();
            tag.trim_start_matches("W/") == own && !(surely && weak)
        };
        // Splitting at commas is safe: tags made by this server never contain one.
        tags.trim() == "*" || tags.split(',').map(str::trim).any(is_own)
    }
}

fn date(header: Option<&String>) -> Option<SystemTime> {
    header.and_then(|date| httpdate::parse_http_date(date).ok())
}

/// Converts seconds since 1970 to a time that an HTTP date can express. Returns `None` before 1970 and after 9999.
pub fn in_seconds(seconds: i64) -> Option<SystemTime> {
    // The last second of 9999, the last one that an HTTP date can express.
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head;

    fn evaluate(etag: &str, fields: &str) -> ConditionOutcome {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let head = head::parse(request.as_bytes()).unwrap();
        Validator { etag: etag.to_owned(), modified: in_seconds(784_111_777), is_settled: true }
            .evaluate(&head)
    }

    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn conditions_are_evaluated_in_their_order() {
        let whole = ConditionOutcome::Content { ranges: true };
        let cases = [
            ("If-None-Match: \"a\"".to_owned(), ConditionOutcome::NotModified),
            ("If-None-Match: \"b\", W/\"a\"".to_owned(), ConditionOutcome::NotModified),
            ("If-None-Match: *".to_owned(), ConditionOutcome::NotModified),
            ("If-None-Match: \"b\"".to_owned(), whole),
            (format!("If-None-Match: \"b\"\r\nIf-Modified-Since: {LATER}"), whole),
            (format!("If-Modified-Since: {THEN}"), ConditionOutcome::NotModified),
            (format!("If-Modified-Since: {BEFORE}"), whole),
            ("If-Modified-Since: yesterday".to_owned(), whole),
            ("If-Match: \"a\"".to_owned(), whole),
            ("If-Match: *".to_owned(), whole),
            ("If-Match: W/\"a\"".to_owned(), ConditionOutcome::Failed),
            (format!("If-Match: \"b\"\r\nIf-Unmodified-Since: {LATER}"), ConditionOutcome::Failed),
            (format!("If-Unmodified-Since: {BEFORE}"), ConditionOutcome::Failed),
            (format!("If-Unmodified-Since: {THEN}"), whole),
            ("If-Range: \"a\"".to_owned(), whole),
            ("If-Range: W/\"a\"".to_owned(), ConditionOutcome::Content { ranges: false }),
            ("If-Range: \"b\"".to_owned(), ConditionOutcome::Content { ranges: false }),
            (format!("If-Range: {THEN}"), whole),
            (format!("If-Range: {LATER}"), ConditionOutcome::Content { ranges: false }),
        ];
        for (fields, expected) in cases {
            assert_eq!(evaluate("\"a\"", &fields), expected, "{fields}");
        }
    }

    #[test]
    fn a_weak_tag_does_not_allow_a_range() {
        let whole = ConditionOutcome::Content { ranges: false };
        assert_eq!(evaluate("W/\"a\"", "If-Range: \"a\""), whole);
        assert_eq!(evaluate("W/\"a\"", "If-Range: W/\"a\""), whole);
        assert_eq!(evaluate("W/\"a\"", &format!("If-Range: {THEN}")), whole);
        assert_eq!(evaluate("W/\"a\"", "If-Match: \"a\""), ConditionOutcome::Failed);
        assert_eq!(evaluate("W/\"a\"", "If-None-Match: \"a\""), ConditionOutcome::NotModified);
    }

    #[test]
    fn times_that_a_header_cannot_say_are_none() {
        assert_eq!(in_seconds(-1), None);
        assert_eq!(in_seconds(i64::MAX), None);
        assert!(httpdate::fmt_http_date(in_seconds(253_402_300_799).unwrap()).contains("9999"));
    }
}
