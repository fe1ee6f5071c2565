//! One exclude pattern: its scope and its glob.

use super::glob::{ALLOCATION, Glob, literal_len};

/// A parsed pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// `true` if the pattern includes an entry again that an earlier pattern excluded.
    negated: bool,
    /// `true` if the pattern ends in `/` and so matches only directories.
    directories_only: bool,
    subject: PatternSubject,
}

/// The part of a path that a pattern is compared with.
#[derive(Clone, Debug)]
enum PatternSubject {
    /// The last name equals these bytes.
    Name(Vec<u8>),
    /// The last name matches a glob.
    NameGlob(Glob),
    /// The path below the source begins with these bytes, and its rest matches a glob.
    Path(Vec<u8>, Glob),
}

impl Pattern {
    /// Parses a pattern. Returns `None` if it is empty.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (negated, text) = match text.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (directories_only, text) = match text.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let subject = if text.contains(&b'/') {
            let text = text.strip_prefix(b"/").unwrap_or(text);
            // As in git, the text up to the first special character is compared byte by byte. The glob starts there, so
            // `**` is special directly after a literal prefix, as in `a**/b`.
            let (literal, rest) = text.split_at(literal_len(text));
            PatternSubject::Path(literal.to_vec(), Glob::of_path(rest))
        } else if literal_len(text) == text.len() {
            PatternSubject::Name(text.to_vec())
        } else {
            PatternSubject::NameGlob(Glob::of_name(text))
        };
        let is_something = !text.is_empty();
        is_something.then_some(Self { negated, directories_only, subject })
    }

    /// Returns the number of bytes that the pattern has on the heap.
    pub fn held(&self) -> usize {
        let literal = |text: &Vec<u8>| text.capacity() + ALLOCATION;
        match &self.subject {
            PatternSubject::Name(text) => literal(text),
            PatternSubject::NameGlob(glob) => glob.held(),
            PatternSubject::Path(text, glob) => literal(text) + glob.held(),
        }
    }

    pub fn is_negated(&self) -> bool {
        self.negated
    }

    /// Returns `true` if the pattern matches a path below the source. The source itself has the path `../NAME`.
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match &self.subject {
            PatternSubject::Name(literal) => name == literal,
            PatternSubject::NameGlob(glob) => glob.matches(name),
            PatternSubject::Path(..) if path.starts_with(b"../") => false,
            PatternSubject::Path(literal, glob) => {
                path.strip_prefix(&**literal).is_some_and(|rest| glob.matches(rest))
            }
        }
    }
}
