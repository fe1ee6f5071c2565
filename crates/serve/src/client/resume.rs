//! Decides how a response to a (range) request may be used. Pure functions, after RFC 9110, sections 13 to 15.

use thalweg_tree::journal::Remote;

use super::{
    Expected, FetchError,
    head::{Framing, ResponseHead},
    validator::{Sameness, Validators, compare, validators},
};

/// The request that was sent.
#[derive(Clone, Copy, Debug)]
pub struct FileRequest<'a> {
    /// First byte, and one past the last byte. The inner `None`: to the end of the file; the outer `None`: the
    /// whole file.
    pub range: Option<(u64, Option<u64>)>,
    /// The version of the file that the local part belongs to.
    pub known: Option<&'a Remote>,
    /// `true` if the request carried `If-Range`.
    pub is_conditional: bool,
    /// `true` if the caller compares the whole file with a digest at the end.
    pub is_vouched: bool,
}

impl FileRequest<'_> {
    /// A request for a whole file of which nothing is known.
    pub const ALL: Self =
        Self { range: None, known: None, is_conditional: false, is_vouched: false };

    fn compare(&self, known: &Remote, head: &ResponseHead) -> Sameness {
        compare(known, head, self.is_vouched(head))
    }

    fn is_vouched(&self, head: &ResponseHead) -> bool {
        self.is_vouched || Expected::of_head(head).is_some()
    }
}

/// Classification of a response: how its body may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The body holds the requested bytes up to `to`.
    Piece {
        to: u64,
        total: u64,
        /// If the version was unknown, the validators for later requests. Without them, the fetch cannot be resumed.
        validators: Option<Validators>,
    },
    /// The body is the whole file, of this size if the server sent one.
    Whole(Option<u64>),
    /// The local part belongs to another version of the file: discard it and restart.
    Another,
    /// The server ignores `If-Range`: repeat the request without it.
    Unconditional,
    /// Repeat the request without `Range`.
    Unranged,
}

/// Classifies a response.
pub fn classify_response(
    asked: &FileRequest<'_>,
    head: &ResponseHead,
) -> Result<RangeOutcome, FetchError> {
    match head.status {
        206 => piece(asked, head),
        200 => whole(asked, head),
        416 if asked.known.is_some() => Ok(RangeOutcome::Another),
        // Some servers refuse every range request with these statuses.
        400 | 403 | 416 | 501 if asked.range.is_some() && asked.known.is_none() => {
            Ok(RangeOutcome::Unranged)
        }
        _ => Err(status(head)),
    }
}

/// Converts the status of a response into an error.
pub fn status(head: &ResponseHead) -> FetchError {
    let (status, reason) = (head.status, head.reason.clone());
    FetchError::Status { status, reason, after: head.retry_after() }
}

fn piece(asked: &FileRequest<'_>, head: &ResponseHead) -> Result<RangeOutcome, FetchError> {
    let Some((from, to)) = asked.range else {
        return Err(FetchError::broken("status 206 for a request without Range"));
    };
    let range = head.content_range();
    let range =
        range.ok_or_else(|| FetchError::broken("status 206 without a valid Content-Range"))?;
    let size = range.total.map(std::num::NonZero::get).or(asked.known.map(|known| known.size));
    if let Some(known) = asked.known {
        match asked.compare(known, head) {
            Sameness::Same if size == Some(known.size) => {}
            // A 206 response to a request with If-Range may omit Last-Modified (RFC 9110, 15.3.7). A 206 response to
            // another request may not.
            Sameness::Unproven if asked.is_conditional => return Ok(RangeOutcome::Unconditional),
            _ => return Ok(RangeOutcome::Another),
        }
    }
    if range.from != from || to.is_some_and(|to| range.to > to) {
        let (begin, end) = (range.from, range.to);
        return Err(FetchError::broken(format!(
            "received bytes {begin} to {end}, but requested bytes from {from}"
        )));
    }
    if let Framing::Length(length) = head.framing()?
        && length != range.to - range.from
    {
        return Err(FetchError::broken(format!(
            "the range has {} bytes, but Content-Length is {length}",
            range.to - range.from
        )));
    }
    let is_known = asked.known.is_some();
    let validators = (!is_known).then(|| validators(head, size, asked.is_vouched(head))).flatten();
    match size {
        // Without a validator, this part could not be joined with the next one.
        Some(total) if !is_known && validators.is_none() && range.to < total => {
            Ok(RangeOutcome::Unranged)
        }
        Some(total) => Ok(RangeOutcome::Piece { to: range.to, total, validators }),
        None => Ok(RangeOutcome::Unranged),
    }
}

fn whole(asked: &FileRequest<'_>, head: &ResponseHead) -> Result<RangeOutcome, FetchError> {
    let size = match head.framing()? {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    if let Some(known) = asked.known.filter(|_| asked.is_conditional) {
        // Either the file has changed, or the server does not accept its own validator in `If-Range`.
        let is_same = size.is_none_or(|size| size == known.size)
            && asked.compare(known, head) == Sameness::Same;
        return Ok(if is_same { RangeOutcome::Unconditional } else { RangeOutcome::Another });
    }
    Ok(RangeOutcome::Whole(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, lines: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
        ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn known(validator: &str) -> Remote {
        Remote { url: String::new(), validator: validator.to_owned(), weak: None, size: 10 }
    }

    const FIRST: FileRequest<'_> = FileRequest { range: Some((0, None)), ..FileRequest::ALL };

    fn later(known: &Remote, is_conditional: bool) -> FileRequest<'_> {
        FileRequest {
            range: Some((4, None)),
            known: Some(known),
            is_conditional,
            is_vouched: false,
        }
    }

    #[test]
    fn the_first_answer_says_whether_it_can_be_resumed() {
        let classify = |status, lines: &str| classify_response(&FIRST, &head(status, lines));
        let piece = |to, strong: Option<&str>| {
            let of = |strong: &str| Validators { strong: strong.to_owned(), weak: None };
            RangeOutcome::Piece { to, total: 10, validators: strong.map(of) }
        };
        let all = "Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n";
        assert_eq!(
            classify(206, &format!("{all}ETag: \"a\"\r\n")).unwrap(),
            piece(10, Some("\"a\""))
        );
        assert_eq!(classify(206, all).unwrap(), piece(10, None));
        let some = "Content-Range: bytes 0-4/10\r\nContent-Length: 5\r\n";
        assert_eq!(
            classify(206, &format!("{some}ETag: \"a\"\r\n")).unwrap(),
            piece(5, Some("\"a\""))
        );
        assert_eq!(classify(206, some).unwrap(), RangeOutcome::Unranged);
        assert_eq!(
            classify(206, "Content-Range: bytes 0-9/*\r\nETag: \"a\"\r\n").unwrap(),
            RangeOutcome::Unranged
        );
        assert_eq!(classify(200, "Content-Length: 10\r\n").unwrap(), RangeOutcome::Whole(Some(10)));
        assert_eq!(classify(200, "").unwrap(), RangeOutcome::Whole(None));
        assert_eq!(classify(416, "Content-Range: bytes */0\r\n").unwrap(), RangeOutcome::Unranged);
        for status in [400, 403, 501] {
            assert_eq!(classify(status, "").unwrap(), RangeOutcome::Unranged);
            assert!(classify_response(&FileRequest::ALL, &head(status, "")).is_err());
            assert!(classify_response(&later(&known("\"a\""), true), &head(status, "")).is_err());
        }
        for (status, wrong) in [
            (206, "Content-Range: bytes 1-9/10\r\n"),
            (206, "Content-Range: bytes 0-9/10\r\nContent-Length: 11\r\n"),
            (206, ""),
            (404, ""),
            (204, ""),
        ] {
            assert!(classify(status, wrong).is_err(), "{status} {wrong}");
        }
    }

    #[test]
    fn going_on_wants_the_same_file_and_the_range_that_was_asked_for() {
        let known = known("\"a\"");
        let asked = |is_conditional| later(&known, is_conditional);
        let range = "Content-Range: bytes 4-9/10\r\n";
        let on = RangeOutcome::Piece { to: 10, total: 10, validators: None };
        let same = head(206, &format!("{range}ETag: \"a\"\r\n"));
        assert_eq!(classify_response(&asked(true), &same).unwrap(), on);
        assert_eq!(classify_response(&asked(false), &same).unwrap(), on);
        // Both responses must have the same validator. A response to an unconditional request may not omit it.
        assert_eq!(
            classify_response(&asked(true), &head(206, range)).unwrap(),
            RangeOutcome::Unconditional
        );
        assert_eq!(
            classify_response(&asked(false), &head(206, range)).unwrap(),
            RangeOutcome::Another
        );
        for another in [
            format!("{range}ETag: \"b\"\r\n"),
            format!("{range}ETag: W/\"a\"\r\n"),
            "Content-Range: bytes 4-10/11\r\nETag: \"a\"\r\n".to_owned(),
        ] {
            assert_eq!(
                classify_response(&asked(true), &head(206, &another)).unwrap(),
                RangeOutcome::Another,
                "{another}"
            );
        }
        let other_range = "Content-Range: bytes 0-9/10\r\nETag: \"a\"\r\n";
        assert!(classify_response(&asked(true), &head(206, other_range)).is_err());
        assert_eq!(classify_response(&asked(true), &head(416, "")).unwrap(), RangeOutcome::Another);
    }

    #[test]
    fn a_whole_file_instead_of_a_range_is_a_change_or_a_condition_not_understood() {
        let known = known("\"a\"");
        let asked = |is_conditional| later(&known, is_conditional);
        let same = head(200, "Content-Length: 10\r\nETag: \"a\"\r\n");
        assert_eq!(classify_response(&asked(true), &same).unwrap(), RangeOutcome::Unconditional);
        assert_eq!(classify_response(&asked(false), &same).unwrap(), RangeOutcome::Whole(Some(10)));
        for changed in
            ["Content-Length: 11\r\nETag: \"a\"\r\n", "ETag: \"b\"\r\n", "Content-Length: 10\r\n"]
        {
            assert_eq!(
                classify_response(&asked(true), &head(200, changed)).unwrap(),
                RangeOutcome::Another,
                "{changed}"
            );
        }
    }
}
