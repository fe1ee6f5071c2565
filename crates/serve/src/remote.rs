//! Names on other machines, `[USER@]HOST:PATH`, and their form on the command line of a remote shell.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// A path on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteName {
    /// `HOST` or `USER@HOST`, without the brackets of an IPv6 address. Never begins with `-`.
    pub host: String,
    /// The path. Empty: the home directory.
    pub path: OsString,
}

/// The reason why a name is neither a local path nor a remote name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}': {why}", thalweg_core::shown(.name))]
pub struct InvalidName {
    name: OsString,
    why: &'static str,
}

/// Characters that no shell interprets.
const QUIET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/');
/// Characters of a host or user besides letters and digits. ssh may insert both into the command of a proxy, which a
/// shell runs.
const IN_HOST: &[u8] = b".-_:%+,=@";

impl RemoteName {
    /// Parses a name as rsync and scp do. Returns `None` for a local path: one without a colon, or with a slash before
    /// the first colon, or one that begins with the colon.
    pub fn parse(name: &OsStr) -> Result<Option<Self>, InvalidName> {
        let bytes = name.as_bytes();
        let Some((host, path)) = split(bytes) else { return Ok(None) };
        let invalid = |why| Err(InvalidName { name: name.to_owned(), why });
        if path.starts_with(b":") {
            return invalid("rsync daemons are not supported");
        }
        if path.starts_with(b"//") && host.iter().all(u8::is_ascii_alphanumeric) {
            return invalid(
                "not a path; use `thalweg fetch` for a URL, or ./NAME for a local file",
            );
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || IN_HOST.contains(byte);
        // Every part between `@` is checked, because a command may split the name at the first `@`.
        let mut parts = host.split(|byte| *byte == b'@');
        if parts.any(|part| part.is_empty() || part.starts_with(b"-")) || !host.iter().all(is_plain)
        {
            return invalid("invalid host name; write ./NAME for a local file");
        }
        if path.contains(&0) {
            return invalid("the path contains a NUL");
        }
        // All bytes of the host are ASCII.
        let host = String::from_utf8_lossy(&host).into_owned();
        Ok(Some(Self { host, path: OsString::from_vec(path.to_vec()) }))
    }

    /// Returns the path as one word that every shell leaves unchanged: percent-encoded.
    pub fn word(&self) -> String {
        encode(if self.path.is_empty() { OsStr::new(".") } else { &self.path })
    }
}

/// Returns a path as one word that every shell leaves unchanged. Only letters, digits, `-`, `.`, `_`, `/` and `%`
/// remain, and the word does not begin with `-`.
pub fn encode(path: &OsStr) -> String {
    let word = percent_encode(path.as_bytes(), QUIET).to_string();
    match word.strip_prefix('-') {
        Some(rest) => format!("%2D{rest}"),
        None => word,
    }
}

/// Decodes a path that [`encode`] returned. `~` and `~/` at the beginning mean `home`, as in a shell.
pub fn decode(word: &OsStr, home: Option<&Path>) -> PathBuf {
    let path = PathBuf::from(OsString::from_vec(percent_decode(word.as_bytes()).collect()));
    match (home, path.strip_prefix("~")) {
        (Some(home), Ok(below)) => home.join(below),
        _ => path,
    }
}

/// Splits a name at its colon. In brackets, a host may contain colons; the brackets are removed.
fn split(name: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let find = |wanted: u8| name.iter().position(|byte| *byte == wanted);
    if let (Some(begin), Some(end)) = (find(b'['), find(b']'))
        && begin < end
        && (begin == 0 || name[begin - 1] == b'@')
        && !name[..end].contains(&b'/')
        && !name[..begin].contains(&b':')
        && name.get(end + 1) == Some(&b':')
    {
        return Some(([&name[..begin], &name[begin + 1..end]].concat(), &name[end + 2..]));
    }
    let colon = find(b':').filter(|colon| *colon > 0)?;
    let (host, path) = (&name[..colon], &name[colon + 1..]);
    (!host.contains(&b'/')).then(|| (host.to_vec(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn parsed(name: &str) -> Option<(String, String)> {
        let name = RemoteName::parse(OsStr::new(name)).unwrap()?;
        Some((name.host, name.path.into_string().unwrap()))
    }

    #[test]
    fn names_are_parsed_as_by_scp() {
        for (name, host, path) in [
            ("host:", "host", ""),
            ("host:a b", "host", "a b"),
            ("me@host:/a:b", "me@host", "/a:b"),
            ("me@corp@host:x", "me@corp@host", "x"),
            ("[::1]:x", "::1", "x"),
            ("me@[fe80::1%eth0]:~/x", "me@fe80::1%eth0", "~/x"),
            ("h:-x", "h", "-x"),
            ("h:[a]:b", "h", "[a]:b"),
        ] {
            assert_eq!(parsed(name), Some((host.into(), path.into())), "{name}");
        }
        for local in ["a", "./a:b", "/a:b", "a/b:c", ":a", "-", "", "[a]", "[a/b]:c/d"] {
            assert_eq!(parsed(local), None, "{local}");
        }
        for wrong in [
            "-oProxyCommand=x:y",
            "me@-x:y",
            "me@-x@h:y",
            "-me@h:y",
            "@h:y",
            "me@:y",
            "[-x]:y",
            "a b:c",
            "$(x):y",
            "a;b:c",
            "a\nb:c",
            "h::module",
            "http://h/x",
            "h\u{e9}:x",
        ] {
            assert!(RemoteName::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory_of_the_other_side() {
        let home = Some(Path::new("/home/me"));
        let decoded = |path: &str| decode(OsStr::new(&encode(OsStr::new(path))), home);
        assert_eq!(decoded("~"), Path::new("/home/me/"));
        assert_eq!(decoded("~/a b"), Path::new("/home/me/a b"));
        assert_eq!(decoded("./~/a"), Path::new("./~/a"));
        assert_eq!(decoded("~a"), Path::new("~a"));
    }

    proptest! {
        #[test]
        fn no_shell_changes_an_encoded_path(path in prop::collection::vec(any::<u8>(), 1..40)) {
            let path = OsString::from_vec(path);
            let word = encode(&path);
            let is_quiet = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/%".contains(&byte);
            prop_assert!(word.bytes().all(is_quiet) && !word.starts_with('-'), "{word}");
            prop_assert_eq!(decode(OsStr::new(&word), None).into_os_string(), path);
        }
    }
}
