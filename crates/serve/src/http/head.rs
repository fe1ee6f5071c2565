//! Parses one request: the request line and the headers that this server uses. Rejects everything that two servers
//! could interpret differently, because a proxy may run in front of this server (request smuggling).

use std::time::Duration;

use super::{
    status::HttpStatus,
    target::{RequestTarget, is_authority},
};

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub method: RequestMethod,
    pub target: RequestTarget,
    /// The request line as received, for the log; at most [`LONGEST_LOGGED`] bytes.
    pub line: String,
    /// `true` for HTTP/1.0: the answer needs a length or ends with the connection, because chunks are not supported.
    pub is_old: bool,
    /// `true` if another request may follow on this connection.
    pub keep_alive: bool,
    /// `true` if a request body follows. The server does not read it.
    pub has_body: bool,
    pub range: Option<String>,
    pub if_range: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<String>,
    pub if_unmodified_since: Option<String>,
    pub accept_encoding: Option<String>,
    /// `true` if the client asked for the SHA-256 of the whole file (`Want-Repr-Digest`, RFC 9530, 4).
    pub wants_digest: bool,
    /// The time that the client is willing to wait for an answer (`Prefer: wait=SECONDS`, RFC 7240, 4.3).
    pub wait: Option<Duration>,
    /// `true` if the hash was not computed in time and the server answers without it.
    pub without_digest: bool,
}

/// The request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMethod {
    Get,
    /// Like GET, but without the body.
    Head,
}

const MOST_HEADERS: usize = 100;

/// Maximum number of bytes of a request line that are kept for the log.
const LONGEST_LOGGED: usize = 4 << 10;

/// Known methods that are not supported for files: the answer is 405, not 501.
const OTHER_METHODS: &[&str] = &["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];

/// Parses a complete head: it ends with the empty line, and every line ends with CR LF.
pub fn parse(bytes: &[u8]) -> Result<RequestHead, HttpStatus> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(HttpStatus::HEAD_TOO_LARGE),
        Err(httparse::Error::Version) if names_a_version(bytes) => return Err(HttpStatus::VERSION),
        Ok(_) | Err(_) => return Err(HttpStatus::BAD_REQUEST),
    }
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(HttpStatus::BAD_REQUEST);
    };
    let fields = Fields(request.headers);
    let is_old = version == 0;
    fields.check_host(is_old)?;
    let has_body = fields.has_body(is_old)?;
    let method = match method {
        "GET" => RequestMethod::Get,
        "HEAD" => RequestMethod::Head,
        other if OTHER_METHODS.contains(&other) => return Err(HttpStatus::NOT_ALLOWED),
        _ => return Err(HttpStatus::NOT_IMPLEMENTED),
    };
    if fields.joined("expect").is_some_and(|e| !e.trim().eq_ignore_ascii_case("100-continue")) {
        return Err(HttpStatus::EXPECTATION_FAILED);
    }
    let line = bytes.split(|byte| *byte == b'\r').find(|line| !line.is_empty() && *line != b"\n");
    let line = line.unwrap_or_default();
    let connection = |option: &str| fields.lists("connection", option);
    Ok(RequestHead {
        method,
        target: RequestTarget::parse(target)?,
        line: String::from_utf8_lossy(&line[..line.len().min(LONGEST_LOGGED)])
            .trim_start()
            .to_owned(),
        is_old,
        keep_alive: !connection("close") && (!is_old || connection("keep-alive")),
        has_body,
        range: fields.one("range"),
        // A header that cannot be valid must not match, because the client would join parts of two files.
        if_range: fields.joined("if-range").map(|known| known.trim().to_owned()),
        if_match: fields.joined("if-match"),
        if_none_match: fields.joined("if-none-match"),
        if_modified_since: fields.one("if-modified-since"),
        if_unmodified_since: fields.one("if-unmodified-since"),
        accept_encoding: fields.joined("accept-encoding"),
        wants_digest: fields.wants_digest(),
        wait: fields.wait(),
        without_digest: false,
    })
}

/// Returns `true` if the request line names another HTTP version, such as `GET / HTTP/2.0`.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    matches!(words[..], [_, _, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]]
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    }

    /// Returns a header that may occur once. Returns `None` if it occurs twice or has bytes beyond ASCII.
    fn one(&self, name: &str) -> Option<String> {
        let mut all = self.all(name);
        let value = all.next().filter(|value| value.is_ascii())?;
        if all.next().is_some() {
            return None;
        }
        std::str::from_utf8(value).ok().map(|value| value.trim().to_owned())
    }

    /// Returns a list header, with its lines joined by commas. A byte beyond ASCII becomes the character of that
    /// number, as entity tags may contain such bytes.
    fn joined(&self, name: &str) -> Option<String> {
        let values = self.all(name).map(|value| value.iter().map(|b| char::from(*b)).collect());
        let values: Vec<String> = values.collect();
        if values.is_empty() { None } else { Some(values.join(",")) }
    }

    /// Returns `true` if a list header contains this word.
    fn lists(&self, name: &str, word: &str) -> bool {
        let words = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Returns `true` if `Want-Repr-Digest` lists `sha-256` with a weight other than 0.
    fn wants_digest(&self) -> bool {
        let wishes = self.joined("want-repr-digest").unwrap_or_default();
        wishes.split(',').any(|wish| {
            let (name, weight) = wish.split_once('=').unwrap_or((wish, "1"));
            name.trim() == "sha-256" && weight.trim() != "0"
        })
    }

    fn wait(&self) -> Option<Duration> {
        let wishes = self.joined("prefer")?;
        let seconds =
            wishes.split([',', ';']).find_map(|wish| wish.trim().strip_prefix("wait="))?;
        seconds.trim().parse().ok().map(Duration::from_secs)
    }

    /// Requires exactly one valid `Host` (RFC 9112, 3.2). HTTP/1.0 requests may omit it.
    fn check_host(&self, is_old: bool) -> Result<(), HttpStatus> {
        let mut hosts = self.all("host");
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if is_authority(host.trim_ascii()) => Ok(()),
            (None, None) if is_old => Ok(()),
            _ => Err(HttpStatus::BAD_REQUEST),
        }
    }

    /// Returns `true` if a body follows. Rejects requests with two lengths, or with a length and a transfer coding:
    /// request smuggling uses them to make a server read the end of one request as the next one.
    fn has_body(&self, is_old: bool) -> Result<bool, HttpStatus> {
        let mut lengths = self.all("content-length");
        let is_number = |length: &[u8]| !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        let is_coded = self.is_chunked(is_old)?;
        match (lengths.next(), lengths.next()) {
            (None, _) => Ok(is_coded),
            (Some(length), None) if !is_coded && is_number(length) => {
                Ok(length.iter().any(|digit| *digit != b'0'))
            }
            _ => Err(HttpStatus::BAD_REQUEST),
        }
    }

    /// Returns `true` if the body is chunked. Rejects other codings, and any in HTTP/1.0 (RFC 9112, 6.1).
    fn is_chunked(&self, is_old: bool) -> Result<bool, HttpStatus> {
        let mut codings = self.all("transfer-encoding");
        match (codings.next(), codings.next()) {
            (None, _) => Ok(false),
            (Some(one), None) if !is_old => {
                let is_known = one.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if is_known { Ok(true) } else { Err(HttpStatus::NOT_IMPLEMENTED) }
            }
            _ => Err(HttpStatus::BAD_REQUEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(request: &str) -> Option<u16> {
        parse(format!("{request}\r\n\r\n").as_bytes()).err().map(|status| status.0)
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked", 501),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity", 501),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                400,
            ),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3", 400),
            ("GET / HTTP/1.1\r\nAccept: */*", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a", 400),
            ("GET / HTTP/1.0\r\nHost: a\r\nHost: b", 400),
            ("GET / HTTP/1.1\r\nHost: a b", 400),
            ("GET / HTTP/1.1\r\nHost:", 400),
            ("GET / HTTP/1.0\r\nHost: a..b", 400),
            ("GET / HTTP/1.1\r\nHost: :80", 400),
            ("GET / HTTP/1.1\r\nHost: .", 400),
            ("GET / HTTP/1.1\r\nHost: a/b", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded: b", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nA : b", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\0c", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\rc", 400),
            ("GET /\0 HTTP/1.1\r\nHost: a", 400),
            ("GET  / HTTP/1.1\r\nHost: a", 400),
            ("GET / HTTP/1.1 \r\nHost: a", 400),
            ("GET /a b HTTP/1.1\r\nHost: a", 400),
            ("GET / HTP/1.1\r\nHost: a", 400),
            ("GET /%zz HTTP/1.1\r\nHost: a", 400),
            ("GET /%00 HTTP/1.1\r\nHost: a", 400),
            ("GET * HTTP/1.1\r\nHost: a", 400),
            ("GET", 400),
            ("GET / HTTP/2.0\r\nHost: a", 505),
            ("GET / HTTP/1.2\r\nHost: a", 505),
            ("POST / HTTP/1.1\r\nHost: a", 405),
            ("BREW / HTTP/1.1\r\nHost: a", 501),
            ("get / HTTP/1.1\r\nHost: a", 501),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: the worst", 417),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: other", 417),
        ];
        for (request, status) in cases {
            assert_eq!(refusal(request), Some(status), "{request:?}");
        }
        let many = format!("GET / HTTP/1.1\r\nHost: a{}", "\r\nA: b".repeat(MOST_HEADERS));
        assert_eq!(refusal(&many), Some(431));
    }

    #[test]
    fn a_connection_is_kept_as_its_version_says() {
        let keeps =
            |request: &str| parse(format!("{request}\r\n\r\n").as_bytes()).unwrap().keep_alive;
        assert!(keeps("GET / HTTP/1.1\r\nHost: a"));
        assert!(!keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close"));
        assert!(!keeps("GET / HTTP/1.0"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive"));
    }

    #[test]
    fn what_is_asked_for_is_kept_and_what_is_asked_twice_is_not() {
        let request = "\r\nGET /a?b HTTP/1.1\r\nhost: a:80\r\nrange:  bytes=1- \r\n\
                       If-None-Match: \"a\"\r\nIf-None-Match: W/\"b\"\r\nIf-Range: x\r\nIf-Range: y\
                       \r\nContent-Length: 007\r\n\r\n";
        let head = parse(request.as_bytes()).unwrap();
        assert_eq!(head.line, "GET /a?b HTTP/1.1");
        assert_eq!(head.range.as_deref(), Some("bytes=1-"));
        assert_eq!(head.if_none_match.as_deref(), Some("\"a\",W/\"b\""));
        assert_eq!((head.if_range.as_deref(), head.has_body), (Some("x,y"), true));
    }
}
