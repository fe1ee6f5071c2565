//! Reads a manifest file.

use std::collections::HashMap;

use super::{Malformed, Stated};

use crate::names::plain;

/// The lines of a manifest, valid and invalid.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The contents of each valid line, with its line number, starting at 1.
    pub lines: Vec<(usize, Stated)>,
    /// The lines that cannot be checked.
    pub malformed: Vec<(usize, Malformed)>,
    /// `true` if every line ends in CR LF and no line names its hash. Windows writes such line ends. But each name
    /// could also end with a carriage return, which neither `b3sum` nor `xxhsum` escapes.
    may_end_names: bool,
}

impl Manifest {
    /// Parses all lines, with or without a byte order mark. If all lines end in CR LF, each CR is taken for a part of
    /// the line end, but [`Self::is_of`] accepts both readings. Otherwise a CR belongs to the name before it.
    pub fn parse(text: &[u8]) -> Self {
        let mut manifest = Self::default();
        if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
            manifest.malformed.push((1, Malformed::Encoding));
            return manifest;
        }
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let lines = || text.split(|byte| *byte == b'\n');
        let is_crlf = lines().all(|line| line.is_empty() || line.ends_with(b"\r"));
        for (number, line) in (1..).zip(lines()) {
            let whole = line;
            let line = line.strip_suffix(b"\r").filter(|_| is_crlf).unwrap_or(line);
            let parsed = match Stated::parse(line) {
                // Without its carriage return the name would be empty, so the carriage return is the name.
                Err(Malformed::Name) if is_crlf => Stated::parse(whole),
                parsed => parsed,
            };
            match parsed {
                Ok(Some(stated)) => manifest.lines.push((number, stated)),
                Ok(None) => {}
                Err(why) => manifest.malformed.push((number, why)),
            }
        }
        let is_tagged = manifest.lines.iter().any(|(_, stated)| stated.is_tagged);
        manifest.may_end_names = is_crlf && !is_tagged;
        manifest
    }

    /// Returns `true` if a line with the name `stated` may describe the file `name`, with or without a final CR.
    pub fn is_of(&self, stated: &[u8], name: &[u8]) -> bool {
        stated == name || self.may_end_names && name.strip_suffix(b"\r") == Some(stated)
    }

    /// Returns a copy of the manifest in which each name ends with the CR of its line; `None` if no file with such a
    /// name exists.
    pub(crate) fn with_returns(&self, exists: impl Fn(&[u8]) -> bool) -> Option<Self> {
        if !self.may_end_names {
            return None;
        }
        let name = |stated: &Stated| match &*stated.name {
            b"\r" => stated.name.clone(),
            name => [name, b"\r"].concat(),
        };
        let is_any = self.lines.iter().any(|(_, stated)| exists(&name(stated)));
        is_any.then(|| Self {
            lines: (self.lines.iter())
                .map(|(number, stated)| (*number, Stated { name: name(stated), ..stated.clone() }))
                .collect(),
            malformed: self.malformed.clone(),
            may_end_names: false,
        })
    }

    /// Returns the index of each name, in the normalized form that a walk produces.
    pub(crate) fn names(&self) -> HashMap<Vec<u8>, usize> {
        (0..).zip(&self.lines).map(|(at, (_, stated))| (plain(&stated.name), at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers_and_names_are_plain() {
        let digits = "0".repeat(64);
        let text = format!("# by hand\n{digits}  ./a//b\nno line\n\n{digits}  /c");
        let manifest = Manifest::parse(text.as_bytes());
        let numbers: Vec<usize> = manifest.lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 5]);
        assert_eq!(manifest.malformed, [(3, Malformed::Form)]);
        let names = manifest.names();
        assert!(names.contains_key(b"a/b".as_slice()) && names.contains_key(b"/c".as_slice()));
        assert!(Manifest::parse(b"").lines.is_empty());
    }

    #[test]
    fn lists_that_windows_wrote_are_read_or_the_reason_is_said() {
        let digits = "0".repeat(64);
        let names = |text: &[u8]| -> Vec<Vec<u8>> {
            Manifest::parse(text).lines.into_iter().map(|(_, stated)| stated.name).collect()
        };
        let text = format!("\u{feff}{digits}  a\r\n\r\n{digits} *b\r\n");
        assert_eq!(names(text.as_bytes()), [b"a", b"b"]);
        // A CR at the end of only some lines belongs to the name.
        let text = format!("{digits}  a\r\n{digits}  b\n");
        assert_eq!(names(text.as_bytes()), [&b"a\r"[..], b"b"]);
        // A CR at the end of every line belongs to the names if a file with one of these names exists.
        let read = Manifest::parse(format!("{digits}  a\r\n{digits}  b\r\n").as_bytes());
        let with_returns = read.with_returns(|name| name == b"b\r").unwrap();
        let names_of = |read: Manifest| -> Vec<Vec<u8>> {
            read.lines.into_iter().map(|(_, stated)| stated.name).collect()
        };
        assert_eq!(names_of(with_returns), [b"a\r", b"b\r"]);
        assert!(read.with_returns(|name| !name.ends_with(b"\r")).is_none());
        assert!(read.is_of(b"a", b"a") && read.is_of(b"a", b"a\r") && !read.is_of(b"a", b"ab"));
        let tagged = Manifest::parse(format!("SHA256 (a) = {digits}\r\n").as_bytes());
        assert!(tagged.with_returns(|_| true).is_none() && !tagged.is_of(b"a", b"a\r"));
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let read = Manifest::parse(&[b"\xff\xfe", &utf_16[..]].concat());
        assert_eq!((read.lines.len(), &read.malformed[..]), (0, &[(1, Malformed::Encoding)][..]));
    }
}
