//! Builds the head of a request.

use std::fmt::Write;

use super::{FetchError, FetchUrl, proxy::HttpProxy, resume::FileRequest};

/// Longest time in seconds that a server may hash a file before it responds with the digest.
pub(super) const DIGEST_WAIT: u64 = 3600;

/// Headers that every request of a fetch carries.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Headers that the user added: names and values.
    pub headers: Vec<(String, String)>,
    /// `true` to ask the server for the digest of the file.
    pub wants_digest: bool,
}

/// Headers that only the server named by the user receives.
const SECRETS: &[&str] = &["authorization", "cookie", "proxy-authorization"];

/// Returns the text of a request. `is_own`: `true` if the user named this server. `proxy`: the proxy that forwards
/// the request.
pub fn text(
    target: &FetchUrl,
    asked: &FileRequest<'_>,
    extra: &Extra,
    is_own: bool,
    proxy: Option<&HttpProxy>,
) -> String {
    let own: Vec<_> = extra.headers.iter().filter(|(name, _)| is_own || !is_secret(name)).collect();
    // In a tunnel the proxy does not forward requests.
    let proxy = proxy.filter(|_| !target.is_secure());
    let whole = proxy.map(|_| format!("http://{}", target.authority())).unwrap_or_default();
    let (path, host) = (target.path(), target.authority());
    let mut text = format!("GET {whole}{path} HTTP/1.1\r\nHost: {host}\r\n");
    let mut line = |name: &str, value: &str| {
        if !own.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            let _ = write!(text, "{name}: {value}\r\n");
        }
    };
    line("User-Agent", concat!("thalweg/", env!("CARGO_PKG_VERSION")));
    line("Accept", "*/*");
    line("Accept-Encoding", "identity");
    if let Some(authorization) = target.authorization() {
        line("Authorization", &authorization);
    }
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
        line("Proxy-Authorization", authorization);
    }
    if extra.wants_digest {
        line("Want-Repr-Digest", "sha-256=10");
        // Without this, a server that must first hash the file would respond without the digest (RFC 7240, 4.3).
        line("Prefer", &format!("wait={DIGEST_WAIT}"));
    }
    if let Some((from, to)) = asked.range {
        let last = to.map(|to| (to - 1).to_string()).unwrap_or_default();
        line("Range", &format!("bytes={from}-{last}"));
        if let Some(known) = asked.known.filter(|_| asked.is_conditional) {
            line("If-Range", &known.validator);
        }
    }
    for (name, value) in own {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    text
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Parses a header in the form `NAME: VALUE`. Rejects headers that this client sets itself, because it depends on
/// them to interpret the response.
pub fn header(text: &str) -> Result<(String, String), FetchError> {
    let usage = |why: &str| FetchError::Usage(format!("--header '{text}': {why}"));
    let (name, value) =
        text.split_once(':').ok_or_else(|| usage("write the header as NAME: VALUE"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty()
        || !name.bytes().all(is_token)
        || value.bytes().any(|byte| byte < b' ' && byte != b'\t')
    {
        return Err(usage("invalid name or value"));
    }
    let ours = [
        "host",
        "range",
        "if-range",
        "connection",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
    ];
    if ours.contains(&&*name.to_ascii_lowercase()) {
        return Err(usage("fetch sets this header itself"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tree::journal::Remote;

    #[test]
    fn a_request_says_what_is_wanted_and_keeps_secrets_from_others() {
        let target = FetchUrl::parse("http://u:p@h:8080/a b?c").unwrap();
        let (url, validator) = (String::new(), "\"v\"".to_owned());
        let known = Remote { url, validator, weak: None, size: 9 };
        let range = Some((4, Some(8)));
        let asked =
            FileRequest { range, known: Some(&known), is_conditional: true, is_vouched: false };
        let headers = [header("Cookie: c").unwrap(), header("user-agent: me").unwrap()];
        let extra = Extra { headers: headers.to_vec(), wants_digest: true };
        let own = text(&target, &asked, &extra, true, None);
        assert!(own.starts_with("GET /a%20b?c HTTP/1.1\r\nHost: h:8080\r\n"), "{own}");
        for line in
            ["Range: bytes=4-7", "If-Range: \"v\"", "Cookie: c", "Authorization: Basic dTpw"]
        {
            assert!(own.contains(&format!("\r\n{line}\r\n")), "{line} in {own}");
        }
        assert!(own.contains("user-agent: me") && !own.contains("thalweg/"));
        assert!(!text(&target, &asked, &extra, false, None).contains("Cookie"));
        let proxy = HttpProxy { host: "p".into(), port: 1, authorization: Some("Basic x".into()) };
        let handed_on = text(&target, &asked, &extra, true, Some(&proxy));
        assert!(handed_on.starts_with("GET http://h:8080/a%20b?c HTTP/1.1\r\nHost: h:8080\r\n"));
        assert!(handed_on.contains("\r\nProxy-Authorization: Basic x\r\n"));
        for wrong in ["", "a", ": b", "a b: c", "a: b\r\nc: d", "Range: bytes=0-1", "HOST: x"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }
}
