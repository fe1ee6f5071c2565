//! Digests from a list published with the files: lines of `sha256sum`, `b3sum` and `xxhsum`.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use thalweg_tree::{
    Hash,
    manifest::{Malformed, Manifest},
};

use super::{
    Expected, FetchError, FetchOptions, FetchUrl, ask::ask, deadline::CancelCheck,
    in_memory::body_in_memory, resume::FileRequest,
};

/// A list of digests.
#[derive(Debug)]
pub struct DigestList {
    lines: Manifest,
    /// `true` if the name of the list contains `md5`. Then digests of 32 digits are taken for MD5, not for XXH128.
    is_of_md5: bool,
}

/// The origin of a digest that was read as XXH128 because it has 32 digits.
const BARE: &str =
    "--sums; 32 digits without a hash name are read as XXH128, and MD5 is not supported";

fn unsupported(hash: &str, shown: &str) -> FetchError {
    FetchError::Unsupported(format!(
        "--sums: the digest of {shown} is {hash}, but only SHA-256, BLAKE3 and XXH128 are supported"
    ))
}

/// Longest list, in bytes. Lists of files that a user names one by one are shorter.
const LONGEST: u64 = 64 << 20;

impl DigestList {
    /// Parses the lines with digests. Skips all other lines, because lists often contain a signature. `from`: path or
    /// URL of the list.
    pub fn parse(text: &[u8], from: &str) -> Self {
        let name = from.rsplit('/').next().unwrap_or_default();
        let is_of_md5 = name.to_ascii_lowercase().contains("md5");
        Self { lines: Manifest::parse(text), is_of_md5 }
    }

    /// Fetches a list from a server.
    pub fn fetch(
        target: &FetchUrl,
        options: &FetchOptions,
        check: &CancelCheck<'_>,
    ) -> Result<Self, FetchError> {
        let (mut connection, head, _) = ask(target, &FileRequest::ALL, options, check)?;
        let what = "the list of digests";
        let text = body_in_memory(&mut connection, &head, LONGEST, what, options, check)?;
        Ok(Self::parse(&text, &target.path()))
    }

    /// Returns the expected digest of the file with this name. The list may state directories before the name.
    /// Different digests for one name are an error.
    pub fn of(&self, name: &OsStr) -> Result<Expected, FetchError> {
        let last = |stated: &[u8]| {
            let last = stated.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            self.lines.is_of(last, name.as_bytes())
        };
        let lines = self.lines.lines.iter().map(|(_, stated)| stated);
        let mut named = lines.filter(|stated| last(&stated.name));
        let shown = thalweg_core::failed::quoted(std::path::Path::new(name));
        let Some(stated) = named.next() else {
            return Err(self.unnamed(&shown, last));
        };
        if stated.is_bare() && self.is_of_md5 {
            return Err(unsupported("MD5", &shown));
        }
        if named.any(|other| other.digest != stated.digest) {
            return Err(FetchError::Usage(format!(
                "--sums: the list has different digests for {shown}"
            )));
        }
        // 64 digits without a hash name may be SHA-256 or BLAKE3.
        let is_either = stated.hash.is_none();
        let hash = stated.hash.unwrap_or(Hash::Sha256);
        let or = is_either.then_some(Hash::Blake3);
        let by = if stated.is_bare() { BARE } else { "--sums" };
        Ok(Expected { hash, or, digest: stated.digest, by })
    }

    /// Returns the reason why the list has no digest of a file.
    fn unnamed(&self, shown: &str, last: impl Fn(&[u8]) -> bool) -> FetchError {
        for (number, why) in &self.lines.malformed {
            match why {
                Malformed::Unsupported { hash, name } if last(name) => {
                    return unsupported(hash, shown);
                }
                Malformed::Encoding => {
                    return FetchError::Usage(format!("--sums: line {number}: {why}"));
                }
                _ => {}
            }
        }
        FetchError::Usage(format!("--sums: the list has no digest for {shown}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_a_file_is_found_by_its_name() {
        let (a, b) = ("1".repeat(64), "2".repeat(64));
        let text = format!(
            "-----BEGIN-----\n{a}  ./x.iso\n{b} *y.iso\nSHA256 (z) = {a}\n{a}  f/x2\n{b}  g/x2\n{}  h\n",
            "3".repeat(32)
        );
        let sums = DigestList::parse(text.as_bytes(), "http://h/SUMS");
        let of = |name: &str| sums.of(OsStr::new(name)).unwrap();
        assert_eq!((of("x.iso").digest.to_string(), of("x.iso").or), (a, Some(Hash::Blake3)));
        assert_eq!(of("y.iso").digest.to_string(), b);
        assert_eq!((of("z").hash, of("z").or), (Hash::Sha256, None));
        assert_eq!((of("h").hash, of("h").or), (Hash::Xxh3, None));
        let windows = DigestList::parse(format!("{}  w\r\n", "1".repeat(64)).as_bytes(), "SUMS");
        assert!(["w", "w\r"].iter().all(|name| windows.of(OsStr::new(name)).is_ok()));
        for none in ["x", "iso", "x2", ""] {
            assert!(matches!(sums.of(OsStr::new(none)), Err(FetchError::Usage(_))), "{none}");
        }
    }

    #[test]
    fn digests_that_are_not_supported_are_named() {
        let said = |text: &str, from| {
            let sums = DigestList::parse(text.as_bytes(), from);
            sums.of(OsStr::new("a.iso")).map(|expected| expected.by).map_err(|e| e.to_string())
        };
        let digits = "0".repeat(128);
        for (text, hash) in [
            (format!("{}  a.iso\n", &digits[..40]), "SHA-1"),
            (format!("{digits} *./a.iso\r\n"), "SHA-512"),
            (format!("SHA512 (a.iso) = {digits}\n"), "SHA512"),
            (format!("MD5 (a.iso) = {}\nSIZE (a.iso) = 5", &digits[..32]), "MD5"),
        ] {
            let why = said(&text, "SUMS").unwrap_err();
            assert!(why.contains(&format!("'a.iso' is {hash}, but")), "{why}");
        }
        let bare = format!("{}  a.iso\n", &digits[..32]);
        for from in ["/d/MD5SUMS", "http://h/a.iso.md5"] {
            assert!(said(&bare, from).unwrap_err().contains("is MD5, but"), "{from}");
        }
        assert_eq!(said(&bare, "/md5/SUMS"), Ok(BARE));
        let both = format!("SHA512 (a.iso) = {digits}\nSHA256 (a.iso) = {}\n", &digits[..64]);
        assert_eq!(said(&both, "SUMS"), Ok("--sums"));
        assert!(said("\u{feff}x", "SUMS").unwrap_err().contains("no digest for"));
    }
}
