//! The digest that a file must have, and its origin.

use std::os::fd::BorrowedFd;

use base64::{Engine, engine::general_purpose::STANDARD};
use thalweg_core::{Cancelled, Side, atomic_file::failed, mechanisms::LAST_RESORT};
use thalweg_sys::buffer::Buffer;
use thalweg_tree::{
    Hash, drop_cached,
    hashing::{Digest, hash_file},
    manifest::Stated,
};

use super::{FetchError, head::ResponseHead};

/// A hash that a file must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub hash: Hash,
    /// A second hash function to try, because the number of digits fits both.
    pub or: Option<Hash>,
    pub digest: Digest,
    /// The origin of the digest, for messages.
    pub by: &'static str,
}

/// Size of the read buffer.
const ROOM: usize = 256 << 10;

impl Expected {
    /// Parses 64 hexadecimal digits.
    pub fn of_digits(hash: Hash, digits: &str, by: &'static str) -> Result<Self, FetchError> {
        let stated = Stated::parse(format!("{}  -", digits.trim()).as_bytes());
        let digest = stated.ok().flatten().map(|stated| stated.digest);
        let digest = digest.filter(|digest| digest.bytes().len() == 32);
        let usage = || FetchError::Usage(format!("{by} '{digits}': not 64 hexadecimal digits"));
        Ok(Self { hash, or: None, digest: digest.ok_or_else(usage)?, by })
    }

    /// Returns the digest of the whole file that the server sent (RFC 9530): `Repr-Digest: sha-256=:BASE64:`.
    pub fn of_head(head: &ResponseHead) -> Option<Self> {
        let mut list = head.get("repr-digest")?.split(',').map(str::trim);
        let text = list.find_map(|member| member.strip_prefix("sha-256=:"))?;
        let bytes = STANDARD.decode(text.split(':').next()?).ok()?;
        let digest = Digest::of(&bytes).filter(|digest| digest.bytes().len() == 32)?;
        Some(Self { hash: Hash::Sha256, or: None, digest, by: "the server" })
    }

    /// Reads the file, compares its digest, and returns the name of the hash that matches. `from_device`: `true` to
    /// drop the file from the page cache first, so that the bytes come from the device.
    pub fn check(
        &self,
        file: BorrowedFd<'_>,
        from_device: bool,
        check_cancelled: &impl Fn() -> Result<(), Cancelled>,
    ) -> Result<&'static str, FetchError> {
        let mut last = None;
        for hash in [Some(self.hash), self.or].into_iter().flatten() {
            if from_device {
                // The kernel may keep some pages in the page cache. Then their cached bytes are compared.
                drop_cached(file).map_err(failed("fdatasync"))?;
            }
            let mut buffer = Buffer::new(ROOM);
            let unread =
                |errno| FetchError::Moved(LAST_RESORT.info().error("pread", Side::Sink, errno, 0));
            let (_, got) = hash_file(file, hash, &mut buffer, u64::MAX, check_cancelled, unread)?;
            if got == self.digest {
                return Ok(name(hash));
            }
            last = Some((name(hash), got));
        }
        let (hash, got) = last.map_or(("", String::new()), |(hash, got)| (hash, got.to_string()));
        Err(FetchError::Differs { hash, got, want: self.digest.to_string(), by: self.by })
    }
}

/// Returns the name of a hash function.
fn name(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha256 => "sha256",
        Hash::Blake3 => "blake3",
        Hash::Xxh3 => "xxh3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_from_digits_and_from_the_header() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let given = Expected::of_digits(Hash::Sha256, empty, "--sha256").unwrap();
        assert_eq!(given.digest.to_string(), empty);
        for wrong in ["", "e3", &empty[1..], &empty.replace('e', "g"), &empty[32..]] {
            assert!(Expected::of_digits(Hash::Sha256, wrong, "--sha256").is_err(), "{wrong}");
        }
        let head = |value: &str| {
            let text = format!("HTTP/1.1 200 OK\r\nRepr-Digest: {value}\r\n\r\n");
            ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
        };
        let base64 = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        let said = Expected::of_head(&head(&format!("md5=:x:, sha-256=:{base64}:"))).unwrap();
        assert_eq!(said.digest, given.digest);
        for none in ["sha-256=:AAAA:", "sha-256=:?:", "sha-512=:AAAA:", "sha-256"] {
            assert_eq!(Expected::of_head(&head(none)), None, "{none}");
        }
    }
}
