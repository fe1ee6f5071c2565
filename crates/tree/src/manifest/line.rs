//! One line of a manifest. Three tools write this format, and each escapes names in its own way. The parser accepts
//! all of them; the writer uses the format of the tool for that hash.

use crate::{Hash, hashing::Digest};

/// The contents of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// The name of the file.
    pub name: Vec<u8>,
    /// The digest of the file.
    pub digest: Digest,
    /// The hash function; `None` if the line does not determine it, because two hash functions produce 64 digits.
    pub hash: Option<Hash>,
    /// `true` if the line names its hash function. Otherwise the function can be ambiguous: MD5 and XXH128, for
    /// example, both produce 32 digits.
    pub is_tagged: bool,
}

/// The reason why a line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The line starts neither with digits nor with the name of a hash.
    #[error("the format is neither 'DIGITS  NAME' nor 'HASH (NAME) = DIGITS'")]
    Form,
    /// No supported hash has this number of digits.
    #[error("the digest has {0} hexadecimal digits; SHA-256 and BLAKE3 have 64, XXH128 has 32")]
    Digits(usize),
    /// The digest was made with an unsupported hash.
    #[error("{hash} digests are not supported, only SHA-256, BLAKE3 and XXH128")]
    Unsupported {
        /// The hash.
        hash: String,
        /// The file.
        name: Vec<u8>,
    },
    /// The text is encoded in UTF-16.
    #[error("the list is UTF-16 text; save it as UTF-8")]
    Encoding,
    /// A backslash is followed by a character other than `n`, `r` and backslash.
    #[error("invalid backslash escape in the name")]
    Escape,
    /// The name is empty or contains a NUL.
    #[error("the name is empty or contains a NUL")]
    Name,
}

/// The names of hashes in tagged lines.
const TAGS: [(&str, Hash); 4] = [
    ("SHA256", Hash::Sha256),
    // openssl dgst
    ("SHA2-256", Hash::Sha256),
    ("BLAKE3", Hash::Blake3),
    ("XXH128", Hash::Xxh3),
];
/// Number of digits of hashes that are not supported.
const UNSUPPORTED: [(usize, &str); 6] = [
    (8, "XXH32 or CRC-32"),
    (16, "XXH64"),
    (40, "SHA-1"),
    (56, "SHA-224"),
    (96, "SHA-384"),
    (128, "SHA-512"),
];

/// Writes a line with few escapes. `b3sum` 1.2 cannot read `\r`, and `xxhsum` 0.8.1 reads no escapes at all.
pub fn write_line(out: &mut Vec<u8>, hash: Hash, digest: &Digest, name: &[u8]) {
    let escaped: &[u8] = match hash {
        Hash::Sha256 => b"\\\n\r",
        Hash::Blake3 => b"\\\n",
        Hash::Xxh3 => b"\n",
    };
    let has_escapes = name.iter().any(|byte| escaped.contains(byte));
    if has_escapes {
        out.push(b'\\');
    }
    for byte in digest.bytes() {
        out.extend([byte >> 4, byte & 0xf].map(|half| b"0123456789abcdef"[usize::from(half)]));
    }
    out.extend_from_slice(b"  ");
    for byte in name {
        match byte {
            b'\\' if has_escapes => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' if has_escapes && hash != Hash::Blake3 => out.extend_from_slice(b"\\r"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\n');
}

impl Stated {
    /// Returns `true` if the line does not name its hash, and its 32 digits only suggest XXH128. MD5 has 32 digits too.
    pub fn is_bare(&self) -> bool {
        self.hash == Some(Hash::Xxh3) && !self.is_tagged
    }

    /// Parses a line without its line end. Returns `None` if it is empty or a comment.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, Malformed> {
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let (has_escapes, line) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digest, tag, name) = match line.get(digits..) {
            Some([b' ' | b'\t', b' ' | b'*' | b'\t', name @ ..]) => (&line[..digits], None, name),
            // Some tools write this format with the option `-r`.
            Some([b' ' | b'\t', name @ ..]) if digits >= 8 => (&line[..digits], None, name),
            _ => tagged(line)?,
        };
        let name = if has_escapes { unescape(name)? } else { name.to_vec() };
        if name.is_empty() || name.contains(&0) {
            return Err(Malformed::Name);
        }
        let (digest, hash) = judge(digest, tag, &name)?;
        Ok(Some(Self { name, digest, hash, is_tagged: tag.is_some() }))
    }
}

/// Digits, tag and name of `SHA256 (NAME) = DIGITS`, or of `SHA256(NAME)= DIGITS`, the form that openssl writes.
type Tagged<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

fn tagged(line: &[u8]) -> Result<Tagged<'_>, Malformed> {
    let open = line.iter().position(|byte| *byte == b'(').ok_or(Malformed::Form)?;
    let tag = line[..open].strip_suffix(b" ").unwrap_or(&line[..open]);
    let ends = [&b") = "[..], b")= "].into_iter();
    let mut found = ends.filter_map(|end| {
        line.windows(end.len()).rposition(|four| four == end).map(|at| (at, at + end.len()))
    });
    let (close, digits) = found.next().ok_or(Malformed::Form)?;
    let name = line.get(open + 1..close).ok_or(Malformed::Form)?;
    Ok((&line[digits..], Some(tag), name))
}

/// Returns the digest, and its hash if that is known.
fn judge(
    digits: &[u8],
    tag: Option<&[u8]>,
    name: &[u8],
) -> Result<(Digest, Option<Hash>), Malformed> {
    let unsupported =
        |hash: &str| Malformed::Unsupported { hash: hash.to_owned(), name: name.to_vec() };
    let Some(tag) = tag else {
        let other = UNSUPPORTED.iter().find(|(count, _)| *count == digits.len());
        return match other {
            Some((_, hash)) => Err(unsupported(hash)),
            None => {
                digest_of(digits).map(|digest| (digest, (digits.len() == 32).then_some(Hash::Xxh3)))
            }
        };
    };
    let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || b"-/_".contains(byte);
    if tag.is_empty() || tag.len() > 20 || !tag.iter().all(is_tag) {
        return Err(Malformed::Form);
    }
    let known = TAGS.iter().find(|(known, _)| known.as_bytes() == tag);
    let (_, hash) = known.ok_or_else(|| unsupported(&String::from_utf8_lossy(tag)))?;
    let digest = digest_of(digits)?;
    let wanted = if *hash == Hash::Xxh3 { 16 } else { 32 };
    if digest.bytes().len() != wanted {
        return Err(Malformed::Digits(2 * digest.bytes().len()));
    }
    Ok((digest, Some(*hash)))
}

fn digest_of(digits: &[u8]) -> Result<Digest, Malformed> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let halves: Option<Vec<u32>> = digits.iter().map(value).collect();
    let halves = halves.filter(|halves| !halves.is_empty()).ok_or(Malformed::Form)?;
    if halves.len() % 2 == 1 {
        return Err(Malformed::Digits(digits.len()));
    }
    let bytes: Vec<u8> = halves.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    Digest::of(&bytes).ok_or(Malformed::Digits(digits.len()))
}

fn unescape(name: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'\\') => b'\\',
                _ => return Err(Malformed::Escape),
            },
            byte => *byte,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIGITS: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn name_of(line: &str) -> Result<Option<(String, Option<Hash>)>, Malformed> {
        let stated = Stated::parse(line.as_bytes())?;
        Ok(stated.map(|s| (String::from_utf8(s.name).unwrap(), s.hash)))
    }

    #[test]
    fn lines_of_all_three_tools_are_read() {
        let half = &DIGITS[..32];
        for (line, name, hash) in [
            (format!("{DIGITS}  a"), "a", None),
            (format!("{DIGITS} *a"), "a", None),
            (format!("{}   a b ", DIGITS.to_uppercase()), " a b ", None),
            (format!("\\{DIGITS}  a\\\\b\\nc\\r"), "a\\b\nc\r", None),
            (format!("{DIGITS}  a\\b"), "a\\b", None),
            (format!("{half}  a"), "a", Some(Hash::Xxh3)),
            (format!("{DIGITS}\ta b"), "a b", None),
            (format!("{DIGITS}\t*a"), "a", None),
            (format!("SHA2-256(a)= {DIGITS}"), "a", Some(Hash::Sha256)),
            (format!("SHA256(a (1).iso)= {DIGITS}"), "a (1).iso", Some(Hash::Sha256)),
            (format!("SHA256 (a) = b) = {DIGITS}"), "a) = b", Some(Hash::Sha256)),
            (format!("\\BLAKE3 (a\\nb) = {DIGITS}"), "a\nb", Some(Hash::Blake3)),
            (format!("XXH128 (a) = {half}"), "a", Some(Hash::Xxh3)),
        ] {
            assert_eq!(name_of(&line), Ok(Some((name.to_owned(), hash))), "{line}");
        }
        assert_eq!((name_of(""), name_of("# words")), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_is_no_line_is_refused_with_the_reason() {
        let unsupported =
            |hash: &str| Malformed::Unsupported { hash: hash.to_owned(), name: b"a".to_vec() };
        for (line, why) in [
            ("words".to_owned(), Malformed::Form),
            (DIGITS.to_owned(), Malformed::Form),
            (format!("{DIGITS}  "), Malformed::Name),
            (format!("{}  a", &DIGITS[..42]), Malformed::Digits(42)),
            (format!("{}  a", &DIGITS[..40]), unsupported("SHA-1")),
            (format!("{DIGITS}{DIGITS}  a"), unsupported("SHA-512")),
            (format!("SHA512 (a) = {DIGITS}{DIGITS}"), unsupported("SHA512")),
            ("see (a) = b and so on".to_owned(), unsupported("see")),
            (format!("{}  a", &DIGITS[..31]), Malformed::Digits(31)),
            (format!("MD5 (a) = {}", &DIGITS[..32]), unsupported("MD5")),
            (format!("XXH128 (a) = {DIGITS}"), Malformed::Digits(64)),
            (format!("\\{DIGITS}  a\\b"), Malformed::Escape),
            (format!("{DIGITS}  a\0b"), Malformed::Name),
        ] {
            assert_eq!(name_of(&line), Err(why), "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            name in prop::collection::vec(1_u8.., 1..40),
            bytes in prop::array::uniform32(any::<u8>()),
        ) {
            for hash in [Hash::Sha256, Hash::Blake3, Hash::Xxh3] {
                let len = if hash == Hash::Xxh3 { 16 } else { 32 };
                let digest = Digest::of(&bytes[..len]).unwrap();
                let mut line = Vec::new();
                write_line(&mut line, hash, &digest, &name);
                let (end, line) = line.split_last().unwrap();
                prop_assert!(*end == b'\n' && !line.contains(&b'\n'));
                let stated = Stated::parse(line).unwrap().unwrap();
                prop_assert_eq!((&stated.name, stated.digest), (&name, digest));
            }
        }

        #[test]
        fn no_line_panics(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stated::parse(&line);
        }
    }
}
