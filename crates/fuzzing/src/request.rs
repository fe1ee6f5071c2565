//! HTTP requests: no input may crash the parsers, and the results must not depend on how the bytes were split.

use std::path::Component;

use thalweg_serve::{
    http::{
        condition::{Validator, in_seconds},
        head::RequestHead,
        input::RequestBuffer,
        media::accepted,
        range::{MOST_RANGES, WantedRanges, wanted},
        status::HttpStatus,
    },
    manifest::ListRequest,
};

const SIZE: u64 = 1000;

/// Returns the requests in these pieces of a connection, up to the first refused one.
pub fn answers<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Vec<Result<RequestHead, HttpStatus>> {
    let (mut input, mut answers) = (RequestBuffer::default(), Vec::new());
    for piece in pieces {
        input.feed(piece);
        while let Some(answer) = input.take() {
            let is_refused = answer.is_err();
            answers.push(answer);
            if is_refused {
                return answers;
            }
        }
    }
    answers
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let whole = answers(std::iter::once(bytes));
    assert_eq!(answers(bytes.chunks(1)), whole);
    for head in whole.into_iter().flatten() {
        assert!(head.target.path.components().all(|part| matches!(part, Component::Normal(_))));
        if let Some(list) = head.target.query.as_deref().and_then(ListRequest::parse) {
            assert_eq!(ListRequest::parse(&list.query()), Some(list));
        }
        if let Some(WantedRanges::Parts(parts)) =
            head.range.as_ref().map(|range| wanted(range, SIZE))
        {
            assert!(!parts.is_empty() && parts.len() <= MOST_RANGES);
            assert!(parts.iter().all(|part| part.from < part.to && part.to <= SIZE));
        }
        let etag = "\"tag\"".to_owned();
        Validator { etag, modified: in_seconds(784_111_777), is_settled: true }.evaluate(&head);
        assert!(accepted(head.accept_encoding.as_deref().unwrap_or_default()).count() <= 3);
    }
}
