//! Request targets: a path below the root, and a query.

use std::os::unix::ffi::OsStrExt;
use std::{ffi::OsStr, path::PathBuf};

use percent_encoding::percent_decode;

use super::status::HttpStatus;

/// A decoded request target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTarget {
    /// Relative to the root: without `..`, empty names or a leading slash. Empty for the root itself.
    pub path: PathBuf,
    /// `true` if the path ended with a slash, so that it names a directory.
    pub is_directory: bool,
    /// The text after the question mark.
    pub query: Option<String>,
}

impl RequestTarget {
    /// Parses a request path, or the absolute URL that a client sends to a proxy.
    pub fn parse(target: &str) -> Result<Self, HttpStatus> {
        let (target, query) = match target.split_once('?') {
            Some((target, query)) => (target, Some(query.to_owned())),
            None => (target, None),
        };
        // Schemes are case-insensitive (RFC 3986, 3.1).
        let rest = target.split_once("://").filter(|(scheme, _)| {
            ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
        });
        let path = match rest.map(|(_, rest)| rest.split_at(rest.find('/').unwrap_or(rest.len()))) {
            Some((authority, _)) if !is_url_authority(authority) => {
                return Err(HttpStatus::BAD_REQUEST);
            }
            Some((_, "")) => "/",
            Some((_, path)) => path,
            None => target,
        };
        if !path.starts_with('/') || path.contains('#') {
            return Err(HttpStatus::BAD_REQUEST);
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        for name in path.split('/') {
            let name = decoded(name)?;
            match &*name {
                b"" | b"." => {}
                b".." => drop(names.pop().ok_or(HttpStatus::BAD_REQUEST)?),
                // A file name cannot contain a slash.
                name if name.contains(&b'/') => return Err(HttpStatus::NOT_FOUND),
                _ => names.push(name),
            }
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_directory = matches!(&*decoded(last)?, b"" | b"." | b"..");
        let path = names.iter().map(|name| OsStr::from_bytes(name)).collect();
        Ok(Self { path, is_directory, query })
    }

    /// Returns `true` if any name starts with a dot.
    pub fn is_hidden(&self) -> bool {
        self.path.iter().any(|name| name.as_bytes().starts_with(b"."))
    }
}

/// Returns `true` for the host of an absolute URL or of a `Host` header, with or without a port. Also rejects hosts
/// that nginx rejects, so that a proxy and this server accept the same requests.
pub fn is_authority(text: &[u8]) -> bool {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(byte);
    let name = text.split(|byte| *byte == b':').next().unwrap_or_default();
    let is_named = text.starts_with(b"[") || !matches!(name, b"" | b".");
    is_named && text.iter().all(is_known) && !text.windows(2).any(|two| two == b"..")
}

/// Returns `true` for the host and port of an absolute URL: a name or an address in brackets, then digits.
fn is_url_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some(parts)) => parts,
        Some(None) => return false,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    let port = port.strip_prefix(':').unwrap_or(port);
    is_authority(text.as_bytes())
        && host.bytes().all(is_known)
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes the percent escapes of a name. Fails if an escape is invalid or encodes a NUL byte, which would end a C
/// string.
fn decoded(name: &str) -> Result<Vec<u8>, HttpStatus> {
    let mut escapes = name.split('%').skip(1).map(|rest| rest.as_bytes().get(..2));
    let is_escape =
        |two: Option<&[u8]>| two.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !escapes.all(is_escape) {
        return Err(HttpStatus::BAD_REQUEST);
    }
    let bytes: Vec<u8> = percent_decode(name.as_bytes()).collect();
    if bytes.contains(&0) { Err(HttpStatus::BAD_REQUEST) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    #[test]
    fn no_spelling_leads_above_the_root() {
        let path = |target| RequestTarget::parse(target).map(|target| target.path);
        for same in [
            "/a/b",
            "//a///b",
            "/a/./b",
            "/x/../a/b",
            "/a/%62",
            "/x/%2e%2E/a/b",
            "http://h/a/b",
            "HTTPS://h/a/b",
            "http://h-1.example:80/a/b",
            "http://[::1]:80/a/b",
        ] {
            assert_eq!(path(same).as_deref(), Ok(Path::new("a/b")), "{same}");
        }
        for above in [
            "/..",
            "/a/../..",
            "/%2e%2e/etc",
            "/../a",
            "a",
            "*",
            "",
            "/a#b",
            "http://",
            "http:///a",
            "http://?/a",
            "http://:80/a",
            "http://h..i/a",
            "http://u@h/a",
            "http://%2e/a",
            "http://[::1/a",
            "http://[::1]x/a",
            "http://h:x/a",
        ] {
            assert_eq!(path(above), Err(HttpStatus::BAD_REQUEST), "{above}");
        }
        assert_eq!(path("/%2e%2e%2fetc"), Err(HttpStatus::NOT_FOUND));
        for bad in ["/%", "/%1", "/%g0", "/%00", "/a%0"] {
            assert_eq!(path(bad), Err(HttpStatus::BAD_REQUEST), "{bad}");
        }
    }

    #[test]
    fn a_name_may_be_any_bytes() {
        let target = RequestTarget::parse("/%ff%20%3F/?json").unwrap();
        assert_eq!(target.path.as_os_str().as_bytes(), b"\xff ?");
        assert_eq!((target.is_directory, target.query.as_deref()), (true, Some("json")));
        assert!(RequestTarget::parse("/a/%2egit/b").unwrap().is_hidden());
        assert!(!RequestTarget::parse("/a./b.").unwrap().is_hidden());
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_has_names_only(text in "[/.%2eEfF0-9a?]{0,24}") {
            if let Ok(target) = RequestTarget::parse(&text) {
                let mut parts = target.path.components();
                proptest::prop_assert!(parts.all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}
