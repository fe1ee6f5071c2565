//! Patterns as in `.gitignore`, which exclude entries from a copy.
//!
//! The rules are those of gitignore(5); the test `crates/tree/tests/tree/exclude.rs` compares random pattern lists with
//! `git ls-files -o --exclude-from`.

use std::{os::unix::ffi::OsStrExt, path::Path};

use crate::Filter;

mod glob;
mod pattern;

use pattern::Pattern;

/// An ordered list of exclude patterns. The last pattern that matches an entry decides.
#[derive(Clone, Debug, Default)]
pub struct ExcludePatterns(Vec<Pattern>);

impl ExcludePatterns {
    /// Adds one pattern. A leading `!` negates it. `#` and trailing blanks are ordinary characters.
    pub fn add(&mut self, pattern: &[u8]) {
        self.0.extend(Pattern::parse(pattern));
    }

    /// Adds all lines of a pattern file. Lines end in LF or CR LF; a byte order mark at the start is skipped.
    pub fn add_file(&mut self, text: &[u8]) {
        Self::in_file(text).for_each(|pattern| self.add(pattern));
        self.0.shrink_to_fit();
    }

    /// Returns the memory of the patterns in bytes. It can be 80 times the size of their text.
    pub fn held(&self) -> usize {
        let patterns = self.0.capacity() * size_of::<Pattern>();
        patterns + self.0.iter().map(Pattern::held).sum::<usize>()
    }

    /// Returns the pattern of a line without its line end and trailing blanks; `None` for a comment.
    pub fn in_line(line: &[u8]) -> Option<&[u8]> {
        (line.first() != Some(&b'#')).then(|| without_trailing_blanks(line))
    }

    /// Returns the patterns of a pattern file, in order.
    pub fn in_file(text: &[u8]) -> impl Iterator<Item = &[u8]> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let lines = text.split(|byte| *byte == b'\n');
        let patterns =
            lines.filter_map(|line| Self::in_line(line.strip_suffix(b"\r").unwrap_or(line)));
        patterns.filter(|pattern| !pattern.is_empty())
    }

    /// Returns the decision of the last pattern that matches, `true` to exclude; `None` if none matches.
    pub fn decide(&self, path: &Path, is_directory: bool) -> Option<bool> {
        let path = path.as_os_str().as_bytes();
        let matching = self.0.iter().rev().find(|pattern| pattern.matches(path, is_directory));
        matching.map(|pattern| !pattern.is_negated())
    }

    /// Returns `true` if no pattern was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Filter for ExcludePatterns {
    fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        self.decide(path, is_directory).unwrap_or(false)
    }
}

/// Removes blanks at the end, but not one after a backslash. Tabs stay.
fn without_trailing_blanks(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte != b' ' {
            end = at.min(line.len());
        }
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves_out(patterns: &[&str], path: &str) -> bool {
        let mut list = ExcludePatterns::default();
        for pattern in patterns {
            list.add(pattern.as_bytes());
        }
        list.leaves_out(Path::new(path), false)
    }

    #[test]
    fn the_last_matching_pattern_decides() {
        assert!(leaves_out(&["!k.o", "*.o"], "k.o"));
        assert!(!leaves_out(&["*.o", "!k.o"], "a/k.o"));
        assert!(!leaves_out(&[], "a"));
    }

    #[test]
    fn braces_are_ordinary_and_a_bracket_never_matches_a_slash() {
        assert!(!leaves_out(&["{a,b}"], "a"));
        assert!(leaves_out(&["{a,b}"], "{a,b}"));
        assert!(!leaves_out(&["lib[!z]x"], "lib/x"));
        assert!(leaves_out(&["[[:digit:]]"], "9"));
    }

    #[test]
    fn a_pattern_that_cannot_match_excludes_nothing() {
        for pattern in ["[", "[a", "a\\", "[[:none:]]", "/", "!", ""] {
            for path in ["a", "[", "[a", "a\\", "n", "a/"] {
                assert!(!leaves_out(&[pattern], path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn the_source_itself_is_matched_by_its_last_name_only() {
        assert!(leaves_out(&["src"], "../src"));
        assert!(!leaves_out(&["/src"], "../src"));
        assert!(!leaves_out(&["*/src"], "../src"));
        assert!(!leaves_out(&["**/src"], "../src"));
    }

    #[test]
    fn a_file_may_begin_with_a_mark_and_end_its_lines_as_windows_does() {
        let mut list = ExcludePatterns::default();
        list.add_file(b"\xef\xbb\xbfone\r\n# two\n\\#two\nthree  \nfour\\  \nfive\t\n");
        for (path, is_left_out) in [
            ("one", true),
            ("two", false),
            ("#two", true),
            ("three", true),
            ("four ", true),
            ("four", false),
            ("five\t", true),
            ("five", false),
        ] {
            assert_eq!(list.leaves_out(Path::new(path), false), is_left_out, "{path:?}");
        }
    }
}
