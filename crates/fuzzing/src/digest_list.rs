//! Lists of digests beside a download, and the digest in a header: no input may crash the parser, and a digest is found
//! only for a name that the list holds.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use thalweg_serve::client::{DigestList, Expected, head::ResponseHead};
use thalweg_tree::manifest::Manifest;

/// Runs one input.
pub fn run(text: &[u8]) {
    let lines = Manifest::parse(text).lines;
    for from in ["http://h/SHA256SUMS", "MD5SUMS"] {
        let sums = DigestList::parse(text, from);
        for (_, stated) in &lines {
            let name = stated.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if let Ok(expected) = sums.of(OsStr::from_bytes(name)) {
                assert_eq!(expected.digest, stated.digest);
            }
        }
        let unlisted = OsStr::from_bytes(b"a name with / in it");
        assert!(sums.of(unlisted).is_err());
    }
    let head = [b"HTTP/1.1 200 OK\r\nRepr-Digest: ", text, b"\r\n\r\n"].concat();
    if let Ok(Some((head, _))) = ResponseHead::parse(&head) {
        assert!(Expected::of_head(&head).is_none_or(|digest| digest.digest.bytes().len() == 32));
    }
}
