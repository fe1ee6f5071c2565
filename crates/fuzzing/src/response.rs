//! HTTP responses: no head may crash the client, or be accepted for more than the request asked for.

use thalweg_serve::client::{
    Expected,
    head::ResponseHead,
    resume::{FileRequest, RangeOutcome, classify_response},
    validator::validators,
};
use thalweg_tree::journal::Remote;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(Some((head, length))) = ResponseHead::parse(bytes) else { return };
    assert!(length <= bytes.len());
    let _ = (head.framing(), head.retry_after(), Expected::of_head(&head));
    let known = Remote { url: String::new(), validator: "\"a\"".to_owned(), size: 10, weak: None };
    assert!(validators(&head, Some(10), false).is_none_or(|found| !found.strong.is_empty()));
    for (known, from) in [(None, 0), (Some(&known), 4)] {
        for is_conditional in [false, known.is_some()] {
            let range = Some((from, None));
            let asked = FileRequest { range, known, is_conditional, is_vouched: false };
            if let Ok(RangeOutcome::Piece { to, total, .. }) = classify_response(&asked, &head) {
                assert!(from < to && to <= total);
                assert!(known.is_none_or(|known| total == known.size));
            }
        }
    }
}
