//! The head of a response: parsed with `httparse`, then checked for contradictions.

use std::{
    num::NonZero,
    time::{Duration, SystemTime},
};

use super::FetchError;

/// Longest accepted head, in bytes.
pub const LONGEST: usize = 64 << 10;
const MOST_HEADERS: usize = 128;

/// The status line and the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    pub reason: String,
    /// `true` for HTTP/1.0: the connection ends with the body.
    is_old: bool,
    headers: Vec<(String, String)>,
}

/// Rule that determines the end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The length of the body in bytes is known.
    Length(u64),
    /// A chunk of length 0 ends the body.
    Chunked,
    /// The body ends with the connection; its length is unknown.
    UntilClose,
}

/// The parsed value of Content-Range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte, and one past the last byte.
    pub from: u64,
    pub to: u64,
    pub total: Option<NonZero<u64>>,
}

impl ResponseHead {
    /// Parses a head and also returns its length; `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, FetchError> {
        let mut room = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut room);
        // Like other clients, accepts spaces after a header name, and folded lines. RFC 9112 (5.1 and 5.2) permits this
        // to a client that is not a proxy.
        let mut lenient = httparse::ParserConfig::default();
        lenient.allow_spaces_after_header_name_in_responses(true);
        lenient.allow_obsolete_multiline_headers_in_responses(true);
        let parsed = lenient.parse_response(&mut response, bytes);
        let length = match parsed.map_err(|error| {
            FetchError::broken(format!("cannot parse the response head: {error}"))
        })? {
            httparse::Status::Complete(length) if length <= LONGEST => length,
            httparse::Status::Partial if bytes.len() < LONGEST => return Ok(None),
            _ => return Err(FetchError::broken("the response head is too long")),
        };
        let text = |value: &[u8]| unfolded(value.iter().map(|byte| char::from(*byte)).collect());
        let pairs = response.headers.iter();
        let head = Self {
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
            is_old: response.version == Some(0),
            headers: pairs.map(|h| (h.name.to_ascii_lowercase(), text(h.value))).collect(),
        };
        Ok(Some((head, length)))
    }

    /// Returns the first value of a header. `name` is in lower case.
    pub fn get(&self, name: &'static str) -> Option<&str> {
        self.all(name).next()
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let named = self.headers.iter().filter(move |(own, _)| own == name);
        named.map(|(_, value)| value.trim())
    }

    /// Returns `true` if the comma-separated list contains this word.
    pub fn lists(&self, name: &'static str, word: &str) -> bool {
        self.all(name)
            .flat_map(|list| list.split(','))
            .any(|own| own.trim().eq_ignore_ascii_case(word))
    }

    /// Returns how the body is delimited (RFC 9112, 6.3).
    pub fn framing(&self) -> Result<Framing, FetchError> {
        if self.all("transfer-encoding").next().is_some() {
            // No server may send both. Two readers that use different headers see different bodies, so an attacker
            // could hide one response in another (RFC 9112, 6.3 and 11.2).
            if self.all("content-length").next().is_some() {
                return Err(FetchError::broken(
                    "both Content-Length and Transfer-Encoding are present",
                ));
            }
            // HTTP/1.0 has no chunks, so the framing of such a response is unreliable (RFC 9112, 6.1).
            if self.is_old {
                return Err(FetchError::broken("Transfer-Encoding in an HTTP/1.0 response"));
            }
            let coded: Vec<&str> =
                self.all("transfer-encoding").flat_map(|list| list.split(',')).collect();
            return match &coded[..] {
                [one] if one.trim().eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
                _ => Err(FetchError::broken(format!(
                    "unsupported Transfer-Encoding: {}",
                    coded.join(",")
                ))),
            };
        }
        if matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        let mut lengths = self.all("content-length").flat_map(|list| list.split(','));
        let Some(first) = lengths.next() else { return Ok(Framing::UntilClose) };
        let length =
            decimal(first.trim()).filter(|_| lengths.all(|other| other.trim() == first.trim()));
        length.map(Framing::Length).ok_or_else(|| {
            let all: Vec<&str> = self.all("content-length").collect();
            FetchError::broken(format!("invalid Content-Length: {}", all.join(", ")))
        })
    }

    /// Parses `Content-Range: bytes 0-9/10`; the total may be `*`.
    pub fn content_range(&self) -> Option<ContentRange> {
        let (unit, range) = self.get("content-range")?.split_once([' ', '\t'])?;
        let (range, total) =
            range.split_once('/').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
        let (from, last) = range.trim().split_once('-')?;
        let (from, to) = (decimal(from)?, decimal(last)?.checked_add(1)?);
        let total = match total {
            "*" => None,
            total => Some(NonZero::new(decimal(total)?)?),
        };
        let fits = from < to && total.is_none_or(|total| to <= total.get());
        fits.then_some(ContentRange { from, to, total })
    }

    /// Parses the date in a header.
    pub fn date(&self, name: &'static str) -> Option<SystemTime> {
        httpdate::parse_http_date(self.get(name)?).ok()
    }

    /// Returns the delay of Retry-After, which is a number of seconds or a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.get("retry-after")?;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            // A number that overflows is a longer delay than any client accepts.
            return Some(Duration::from_secs(decimal(text).unwrap_or(u64::MAX)));
        }
        // Some servers send a wrong weekday, which the parser rejects. Therefore all weekdays are tried. Dates without
        // a comma have the form of asctime(3).
        let on_some_day = || {
            let (_, rest) = text.split_once(',')?;
            let with_day = |day: &str| httpdate::parse_http_date(&format!("{day},{rest}")).ok();
            DAYS.into_iter().find_map(with_day)
        };
        let at = self.date("retry-after").or_else(on_some_day)?;
        at.duration_since(SystemTime::now()).ok()
    }

    /// Returns `true` if the connection accepts another request after the body.
    pub fn keeps_alive(&self) -> bool {
        !self.lists("connection", "close")
            && (!self.is_old || self.lists("connection", "keep-alive"))
    }
}

/// Joins the lines of a folded header value with a space (RFC 9112, 5.2).
fn unfolded(value: String) -> String {
    if value.contains('\n') {
        value.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
    } else {
        value
    }
}

/// Weekdays in the form of HTTP dates.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Parses digits only: `str::parse` would accept a sign.
fn decimal(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let (head, length) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn a_body_ends_as_its_head_says_and_contradictions_are_refused() {
        let framing = |lines: &str| head(lines).framing();
        assert_eq!(framing("Content-Length: 5\r\n").unwrap(), Framing::Length(5));
        assert_eq!(framing("Content-Length: 5, 5\r\n").unwrap(), Framing::Length(5));
        assert_eq!(framing("").unwrap(), Framing::UntilClose);
        assert_eq!(framing("Transfer-Encoding: Chunked\r\n").unwrap(), Framing::Chunked);
        let old = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(ResponseHead::parse(old).unwrap().unwrap().0.framing().is_err());
        for wrong in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: \r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: -5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: \r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
        ] {
            assert!(framing(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_that_make_no_sense_are_none() {
        let range = |value: &str| head(&format!("Content-Range: {value}\r\n")).content_range();
        let total = NonZero::new(10);
        assert_eq!(range("bytes 2-9/10"), Some(ContentRange { from: 2, to: 10, total }));
        assert_eq!(range("Bytes 2-9/10"), Some(ContentRange { from: 2, to: 10, total }));
        assert_eq!(range("BYTES\t 2-9/10"), Some(ContentRange { from: 2, to: 10, total }));
        assert_eq!(range("bytes 0-0/*"), Some(ContentRange { from: 0, to: 1, total: None }));
        for wrong in [
            "bytes */10",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes 0-9/0",
            "0-9/10",
            "bytes 0-9",
            "bits 0-9/10",
        ] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
        assert_eq!(range(&format!("bytes 0-{}/*", u64::MAX)), None);
    }

    #[test]
    fn folded_lines_and_blanks_before_the_colon_are_read_as_other_clients_do() {
        let head = head(
            "Content-Length : 5\r\nETag\t: \"a\"\r\nContent-Range:\r\n bytes\r\n\t0-4/5\r\nX: a\n b\r\n",
        );
        assert_eq!(head.framing().unwrap(), Framing::Length(5));
        assert_eq!((head.get("etag"), head.get("x")), (Some("\"a\""), Some("a b")));
        let range = head.content_range().unwrap();
        assert_eq!((range.from, range.to), (0, 5));
        let lines = "Transfer-Encoding:\r\n chunked\r\nContent-Length :\r\n 5\r\n";
        assert!(self::head(lines).framing().is_err());
    }

    #[test]
    fn a_head_comes_in_pieces_and_must_end() {
        let whole = b"HTTP/1.1 206 Partial\r\nA: b\r\n\r\nbody";
        for cut in 0..whole.len() - 4 {
            assert_eq!(ResponseHead::parse(&whole[..cut]).unwrap(), None, "{cut}");
        }
        assert!(ResponseHead::parse(&[b'x'; 10]).is_err());
        let mut endless = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        endless.resize(LONGEST, b'a');
        assert!(ResponseHead::parse(&endless).is_err());
        assert_eq!(head("Retry-After: 3\r\n").retry_after(), Some(Duration::from_secs(3)));
        let year = Duration::from_secs(365 * 86_400);
        for far in [
            "Mon, 25 Nov 2199 00:00:00 GMT",
            "Tue, 25 Nov 2199 00:00:00 GMT",
            "Thu, 25 Nov 2199 00:00:00 GMT",
            "Sun, 25 Nov 2199 00:00:00 GMT",
            "Mon Nov 25 00:00:00 2199",
        ] {
            let lines = format!("Retry-After: {far}\r\n");
            assert!(head(&lines).retry_after().is_some_and(|wish| wish > year), "{far}");
        }
        let huge = head("Retry-After: 99999999999999999999\r\n").retry_after();
        assert_eq!(huge, Some(Duration::from_secs(u64::MAX)));
        assert_eq!(head("Retry-After: soon\r\n").retry_after(), None);
        assert!(head("Connection: a, Close\r\n").lists("connection", "close"));
        let keeps =
            |text: &str| ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0.keeps_alive();
        assert!(keeps("HTTP/1.1 200 OK\r\n\r\n") && !keeps("HTTP/1.0 200 OK\r\n\r\n"));
        assert!(keeps("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n"));
        assert!(!keeps("HTTP/1.1 200 OK\r\nConnection: a, Close\r\n\r\n"));
    }
}
