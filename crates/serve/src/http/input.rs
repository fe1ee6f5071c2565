//! Receive buffer of a connection, and the requests in it. The result does not depend on how the bytes were split into
//! reads.

use super::{
    head::{self, RequestHead},
    status::HttpStatus,
};

/// Maximum size of a request line and its headers, in bytes.
pub const LARGEST_HEAD: usize = 64 << 10;

/// Maximum number of empty lines before a request. A server should ignore at least one (RFC 9112, 2.2).
const MOST_EMPTY_LINES: usize = 8;

/// Maximum number of bytes that are logged of a rejected request, because such a request may contain anything.
const LONGEST_LOGGED: usize = 200;

/// Received bytes that are not answered yet.
#[derive(Debug, Default)]
pub struct RequestBuffer {
    bytes: Vec<u8>,
    // Bytes before this offset contain neither the end of a head nor a line end other than CR LF.
    looked_at: usize,
    /// Number of empty lines skipped since the last request.
    empty_lines: usize,
}

impl RequestBuffer {
    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns `true` if the buffer holds no byte of a request.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns `true` if nothing, not even an empty line, has been received since the last request.
    pub fn is_untouched(&self) -> bool {
        self.bytes.is_empty() && self.empty_lines == 0
    }

    /// Returns the size of its memory in bytes.
    pub fn held(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Returns `true` if [`Self::take`] has found no complete request in the buffer.
    pub fn is_incomplete(&self) -> bool {
        self.looked_at == self.bytes.len()
    }

    /// Releases memory that holds no received bytes.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Returns the next request if it is complete. After an error the remaining bytes must not be parsed.
    pub fn take(&mut self) -> Option<Result<RequestHead, HttpStatus>> {
        self.skip_empty_lines();
        if self.empty_lines > MOST_EMPTY_LINES {
            return Some(Err(HttpStatus::BAD_REQUEST));
        }
        let end = match self.find_end() {
            Ok(Some(end)) => end,
            Ok(None) => return None,
            Err(status) => return Some(Err(status)),
        };
        let request = head::parse(&self.bytes[..end]);
        if request.is_err() {
            return Some(request);
        }
        self.bytes.drain(..end);
        (self.looked_at, self.empty_lines) = (0, 0);
        if self.bytes.is_empty() {
            // Frees the memory, so that an idle connection needs very little.
            self.bytes = Vec::new();
        }
        Some(request)
    }

    /// Returns the start of the first line of a rejected or incomplete request, for the log. Empties the buffer.
    pub fn give_up(&mut self) -> String {
        let bytes = std::mem::take(self).bytes;
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        String::from_utf8_lossy(&line[..line.len().min(LONGEST_LOGGED)]).into_owned()
    }

    /// Skips empty lines before a request (RFC 9112, 2.2).
    fn skip_empty_lines(&mut self) {
        let empty = self.bytes.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2;
        if empty > 0 {
            self.bytes.drain(..empty);
            self.empty_lines += empty / 2;
            self.looked_at = 0;
        }
    }

    /// Returns the offset behind the empty line that ends the head.
    fn find_end(&mut self) -> Result<Option<usize>, HttpStatus> {
        let most = self.bytes.len().min(LARGEST_HEAD);
        for at in self.looked_at..most {
            if self.bytes[at] != b'\n' {
                continue;
            }
            let before = &self.bytes[..at];
            if !before.ends_with(b"\r") {
                // A proxy in front of this server may accept a bare LF as a line end, or may not. Rejecting it avoids
                // the ambiguity.
                return Err(HttpStatus::BAD_REQUEST);
            }
            if before.ends_with(b"\r\n\r") {
                return Ok(Some(at + 1));
            }
        }
        self.looked_at = most;
        if most < LARGEST_HEAD {
            return Ok(None);
        }
        let line_ends = self.bytes[..most].contains(&b'\n');
        Err(if line_ends { HttpStatus::HEAD_TOO_LARGE } else { HttpStatus::TARGET_TOO_LONG })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(pieces: &[&[u8]]) -> Vec<Result<RequestHead, HttpStatus>> {
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

    #[test]
    fn a_refused_request_yields_its_first_line_and_leaves_nothing() {
        let long = [b'x'; 300];
        for (bytes, expected) in [
            (&b"GET /a HTTP/1.1\r\nHost : a\r\n\r\nGET /b"[..], "GET /a HTTP/1.1"),
            (b"GET /\x00 HTTP/1.1\nHost: a\n\n", "GET /\0 HTTP/1.1"),
            (b"\xff\r\n\r\n", "\u{fffd}"),
            (b"GET /un", "GET /un"),
            (&long, std::str::from_utf8(&long[..LONGEST_LOGGED]).unwrap()),
            (b"", ""),
        ] {
            let mut input = RequestBuffer::default();
            input.feed(bytes);
            assert!(input.take().is_none_or(|answer| answer.is_err()));
            assert_eq!(input.give_up(), expected);
            assert!(input.is_empty() && input.take().is_none());
        }
    }

    #[test]
    fn a_few_empty_lines_are_skipped_and_many_are_refused() {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for (count, is_refused) in [(0, false), (1, false), (8, false), (9, true), (1000, true)] {
            let mut input = RequestBuffer::default();
            let mut answers = Vec::new();
            for _ in 0..count {
                input.feed(b"\r\n");
                answers.extend(input.take());
                assert!(!input.is_untouched());
            }
            input.feed(request);
            answers.extend(input.take());
            assert_eq!(answers.remove(0).is_err(), is_refused, "{count}");
            assert!(is_refused || input.is_untouched());
        }
    }

    fn some_request() -> impl Strategy<Value = Vec<u8>> {
        let line = prop::sample::select(vec![
            "GET / HTTP/1.1",
            "HEAD /a%20b?json HTTP/1.1",
            "GET /c HTTP/1.0",
            "POST / HTTP/1.1",
            "GET",
            "GET /d HTTP/2.0",
        ]);
        let field = prop::sample::select(vec![
            "Host: a",
            "Range: bytes=0-4,7-",
            "Connection: close",
            "If-None-Match: \"x\"",
            " folded",
            "bad name: x",
        ]);
        let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n"]);
        (line, prop::collection::vec(field, 0..4), end, 0..3_usize).prop_map(
            |(line, fields, end, empty)| {
                let empty = "\r\n".repeat(empty);
                let lines: Vec<&str> = [line].into_iter().chain(fields).chain([""]).collect();
                format!("{empty}{}{end}", lines.join(end)).into_bytes()
            },
        )
    }

    proptest! {
        #[test]
        fn any_split_of_pipelined_requests_gives_the_same_answers(
            requests in prop::collection::vec(some_request(), 1..6),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = requests.concat();
            let whole = answers(&[&bytes]);
            let mut places: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len())).collect();
            places.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for place in places {
                pieces.push(&bytes[from..place]);
                from = place;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(answers(&pieces), whole.clone());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(answers(&single), whole);
        }
    }

    #[test]
    fn what_never_ends_is_refused_at_the_limit() {
        let mut input = RequestBuffer::default();
        input.feed(b"GET /");
        input.feed(&vec![b'a'; LARGEST_HEAD - 6]);
        assert_eq!(input.take(), None);
        input.feed(b"a");
        assert_eq!(input.take(), Some(Err(HttpStatus::TARGET_TOO_LONG)));
        let mut input = RequestBuffer::default();
        input.feed(b"GET / HTTP/1.1\r\nA: ");
        input.feed(&vec![b'a'; LARGEST_HEAD]);
        assert_eq!(input.take(), Some(Err(HttpStatus::HEAD_TOO_LARGE)));
    }

    #[test]
    fn lines_end_by_both_characters() {
        for bytes in ["GET / HTTP/1.1\nHost: a\n\n", "\n", "GET / HTTP/1.1\r\nHost: a\n"] {
            assert_eq!(answers(&[bytes.as_bytes()]), [Err(HttpStatus::BAD_REQUEST)], "{bytes:?}");
        }
    }
}
