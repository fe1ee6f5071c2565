//! The URL to fetch, and the parts of it that determine the request and the file name.

use std::{
    ffi::{CString, OsStr, OsString},
    fmt,
    os::unix::ffi::OsStringExt,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use thalweg_core::atomic_file::name::is_reserved;
use url::Url;

use super::FetchError;
use crate::manifest::ListRequest;

/// A URL with a supported scheme and a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchUrl(Url);

impl FetchUrl {
    /// Parses a URL that the user wrote.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        let url = Url::parse(text).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => {
                FetchError::Usage(format!("'{text}' has no scheme: write http:// in front"))
            }
            url::ParseError::IdnaError => FetchError::Usage(format!(
                "'{text}': the host name is not ASCII: write it in its ASCII form (xn--...)"
            )),
            error => FetchError::Usage(format!("'{text}' is not a valid URL: {error}")),
        })?;
        Self::of(url)
    }

    /// Returns the URL of a server at the other end of a byte stream, which has no network address. It is displayed as
    /// `name`, for example `HOST:PATH`, so that an interrupted fetch is continued only from that server.
    pub fn of_stream(name: &str) -> Self {
        let url = Url::parse("http://stream.invalid/");
        let mut url = url.unwrap_or_else(|_| unreachable!("the text is a URL"));
        // The name is stored as the fragment. A client never sends a fragment, and no other URL in this module has one.
        url.set_fragment(Some(&percent_encode(name.as_bytes(), NON_ALPHANUMERIC).to_string()));
        Self(url)
    }

    /// Resolves the target of a redirect. A redirect from https to http is an error.
    pub fn join(&self, location: &str) -> Result<Self, FetchError> {
        // Each char of a header is one byte. `Url` would encode chars above 0x7f as UTF-8, a second time.
        let bytes: Vec<u8> = location.chars().map(|byte| byte as u8).collect();
        let joined = self.0.join(&percent_encode(&bytes, &AsciiSet::EMPTY).to_string());
        let url = joined
            .map_err(|error| FetchError::broken(format!("'Location: {location}': {error}")))?;
        if self.is_secure() && url.scheme() != "https" {
            let message = format!(
                "the redirect from https to '{url}' was not followed, because it leaves https"
            );
            return Err(FetchError::Broken(message));
        }
        let mut joined = Self::of(url)?;
        joined.0.set_fragment(self.0.fragment().filter(|_| joined.is_beside(self)));
        Ok(joined)
    }

    fn of(mut url: Url) -> Result<Self, FetchError> {
        let why = match url.scheme() {
            "https" if !cfg!(feature = "tls") => Some("was built without https".to_owned()),
            "http" | "https" => None,
            other => Some(format!("does not support {other}, only http and https")),
        };
        if let Some(why) = why {
            return Err(FetchError::Unsupported(format!("'{}': this program {why}", Self(url))));
        }
        url.set_fragment(None);
        if url.host_str().is_none_or(str::is_empty) {
            return Err(FetchError::Usage(format!("'{url}' has no host")));
        }
        Ok(Self(url))
    }

    /// Returns `true` if the scheme is https.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns `true` if both URLs have the same scheme, host and port. Only such a server may receive the user's
    /// secrets.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// Returns the host and port to connect to.
    pub fn host(&self) -> (String, u16) {
        let host = self.0.host_str().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (bare.unwrap_or(host).to_owned(), self.0.port_or_known_default().unwrap_or(80))
    }

    /// Returns the value of the header Host.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns the path and query for the request line.
    pub fn path(&self) -> String {
        let query = self.0.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.0.path())
    }

    /// Returns the value of the header Authorization, if the URL holds a user.
    pub fn authorization(&self) -> Option<String> {
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let (user, password) = (self.0.username(), self.0.password());
        if user.is_empty() && password.is_none() {
            return None;
        }
        let pair = [decoded(user), decoded(password.unwrap_or_default())].join(&b':');
        Some(format!("Basic {}", STANDARD.encode(pair)))
    }

    /// Returns the file name at the end of the URL. `None` if it is hidden, contains a slash, or is reserved for
    /// partial files.
    pub fn name(&self) -> Option<OsString> {
        let last = self.0.path_segments()?.next_back()?;
        let name: Vec<u8> = percent_decode_str(last).collect();
        if name.is_empty() || name.starts_with(b".") || name.contains(&b'/') {
            return None;
        }
        let name = CString::new(name).ok()?;
        (!is_reserved(&name)).then(|| OsString::from_vec(name.into_bytes()))
    }

    /// Returns this URL with the given user, unless it already names one.
    #[must_use]
    pub fn for_user(self, user: &str, password: &str) -> Self {
        // `set_username` keeps escapes such as `%41` and encodes all other characters, so each `%` is encoded first.
        let encoded = |text: &str| text.replace('%', "%25");
        self.for_encoded_user(&encoded(user), Some(&encoded(password)))
    }

    /// Returns this URL with the user of `other`, if both have one origin and this URL names no user. An absolute
    /// redirect does not repeat the user.
    #[must_use]
    pub fn for_user_of(self, other: &Self) -> Self {
        if !self.is_beside(other) || other.authorization().is_none() {
            return self;
        }
        self.for_encoded_user(other.0.username(), other.0.password())
    }

    fn for_encoded_user(self, user: &str, password: Option<&str>) -> Self {
        let mut url = self.0.clone();
        let has_user = self.authorization().is_some();
        if has_user || url.set_username(user).is_err() || url.set_password(password).is_err() {
            return self;
        }
        Self(url)
    }

    /// Returns the name of the directory at the end of the URL, under the rules of [`Self::name`].
    pub fn directory_name(&self) -> Option<OsString> {
        let mut url = self.0.clone();
        url.path_segments_mut().ok()?.pop_if_empty();
        Self(url).name()
    }

    /// Returns the URL with a slash at the end and without a query.
    #[must_use]
    pub fn as_directory(&self) -> Self {
        let mut url = self.0.clone();
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        url.set_query(None);
        Self(url)
    }

    /// Returns the URL at which a thalweg server lists this directory.
    #[must_use]
    pub fn manifest(&self, request: &ListRequest) -> Self {
        self.with_query(&request.query())
    }

    /// Returns this URL with another query.
    #[must_use]
    pub fn with_query(&self, query: &str) -> Self {
        let mut url = self.0.clone();
        url.set_query(Some(query));
        Self(url)
    }

    /// Returns the URL of an entry below this directory. `path` is percent-encoded and contains no `.` or `..`.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let mut url = self.0.clone();
        let path = format!("{}{path}", url.path());
        url.set_path(&path);
        Self(url)
    }

    /// Returns `true` if the file name has the extension of this compression. Some servers send `a.gz` with a
    /// Content-Encoding.
    pub fn is_named_after(&self, encoding: &str) -> bool {
        let endings: &[&str] = match &*encoding.to_ascii_lowercase() {
            "gzip" | "x-gzip" => &["gz", "tgz", "svgz"],
            "br" => &["br"],
            "zstd" => &["zst", "tzst"],
            "compress" | "x-compress" => &["z"],
            "bzip2" | "x-bzip2" => &["bz2", "tbz2"],
            "xz" | "x-xz" => &["xz", "txz"],
            _ => &[],
        };
        let name = self.name().unwrap_or_default();
        let ending = std::path::Path::new(&name).extension().and_then(OsStr::to_str);
        ending.is_some_and(|ending| endings.iter().any(|own| own.eq_ignore_ascii_case(ending)))
    }
}

/// Prints the URL without user and password, and the URL of a stream by its name.
impl fmt::Display for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        if let Some(name) = url.fragment() {
            let name = percent_decode_str(name).decode_utf8_lossy();
            let slash = if name.ends_with(['/', ':']) { "" } else { "/" };
            let path = url.path().trim_start_matches('/');
            return if path.is_empty() {
                f.write_str(&name)
            } else {
                write!(f, "{name}{slash}{path}")
            };
        }
        // Both fail for URLs that cannot have a user.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        write!(f, "{url}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> FetchUrl {
        FetchUrl::parse(text).unwrap()
    }

    #[test]
    fn a_name_from_a_url_is_one_part_and_not_hidden() {
        let name = |path: &str| target(&format!("http://h/{path}")).name();
        assert_eq!(name("a/b.iso?x=/y#z"), Some("b.iso".into()));
        assert_eq!(name("a%20b"), Some("a b".into()));
        assert_eq!(name("%ff"), Some(OsString::from_vec(vec![0xff])));
        for none in
            ["", "a/", ".hidden", "%2ehidden", "..", "%2e%2e", "a%2fb", "a%00b", "..%2f..%2fx"]
        {
            assert_eq!(name(none), None, "{none}");
        }
    }

    #[test]
    fn secrets_go_into_a_header_and_are_not_shown() {
        let url = target("http://us%40er:p%3Aw@host:81/x?y#z");
        assert_eq!(url.to_string(), "http://host:81/x?y");
        assert_eq!(url.authorization().as_deref(), Some("Basic dXNAZXI6cDp3"));
        assert_eq!((url.authority().as_str(), url.path().as_str()), ("host:81", "/x?y"));
        assert_eq!(target("http://[::1]:80/").host(), ("::1".to_owned(), 80));
        assert_eq!(target("http://h").authorization(), None);
        let with_user = target("http://h/x").for_user("a:b@", "c d");
        assert_eq!(with_user.authorization().as_deref(), Some("Basic YTpiQDpjIGQ="));
        assert_eq!(url.clone().for_user("a", "b"), url);
        let with_percent = target("http://h/x").for_user("u", "50%41");
        assert_eq!(with_percent.authorization().as_deref(), Some("Basic dTo1MCU0MQ=="));
        let redirected = |to: &str| url.join(to).unwrap().for_user_of(&url).authorization();
        for kept in ["/b", "http://host:81/b", "HTTP://HOST:81/b"] {
            assert_eq!(redirected(kept), url.authorization(), "{kept}");
        }
        for dropped in ["http://host/b", "http://host:82/b", "https://host:81/b", "//other:81/b"] {
            assert_eq!(redirected(dropped), None, "{dropped}");
        }
        assert_eq!(redirected("http://a:b@host:81/c").as_deref(), Some("Basic YTpi"));
    }

    #[test]
    fn a_stream_is_displayed_by_its_name() {
        let url = FetchUrl::of_stream("me@host:a%20b/#x");
        assert_eq!(url.to_string(), "me@host:a%20b/#x");
        assert_eq!(url.below("c%20d").to_string(), "me@host:a%20b/#x/c%20d");
        assert_eq!(FetchUrl::of_stream("h:").below("c").to_string(), "h:c");
        assert_eq!(url.manifest(&ListRequest::default()).path(), "/?manifest");
        let redirected = url.join("/file").unwrap();
        assert_eq!(redirected.to_string(), "me@host:a%20b/#x/file");
        assert_eq!(url.join("http://other/x").unwrap().to_string(), "http://other/x");
    }

    #[test]
    fn what_cannot_be_fetched_is_said() {
        assert!(matches!(FetchUrl::parse("ftp://h/x"), Err(FetchError::Unsupported(_))));
        assert!(matches!(FetchUrl::parse("host/x"), Err(FetchError::Usage(_))));
        assert!(matches!(FetchUrl::parse("http://"), Err(FetchError::Usage(_))));
        let here = target("http://a/b/c");
        assert_eq!(here.join("../d").unwrap(), target("http://a/d"));
        assert!(here.is_beside(&here.join("/d").unwrap()));
        assert!(!here.is_beside(&here.join("//other/d").unwrap()));
        assert!(here.join("file:///etc/passwd").is_err());
        let directory = target("http://h/a%20b?c").as_directory();
        assert_eq!(directory.manifest(&ListRequest::default()).path(), "/a%20b/?manifest");
        assert_eq!(directory.below("%2e%2f/%252e%252e/x").path(), "/a%20b/%2e%2f/%252e%252e/x");
        assert_eq!(directory.directory_name(), Some("a b".into()));
        assert_eq!(target("http://h/").directory_name(), None);
        assert!(target("http://h/a.tar.gz").is_named_after("x-gzip"));
        for (name, encoding) in [
            ("a.svgz", "gzip"),
            ("a.tar.GZ", "GZIP"),
            ("a.TGZ", "x-gzip"),
            ("a.tar.xz", "xz"),
            ("a.Z", "compress"),
        ] {
            assert!(target(&format!("http://h/{name}")).is_named_after(encoding), "{name}");
        }
        assert!(!target("http://h/a.tar").is_named_after("gzip"));
        assert!(!target("http://h/gz").is_named_after("gzip"));
    }
}
