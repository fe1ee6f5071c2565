//! A manifest as it is read from a file.

use std::collections::HashMap;

use super::{Malformed, Stated};

use crate::names::plain;

/// The lines of a manifest, and those that are none.
#[derive(Debug, Default)]
pub struct Manifest {
    /// What each line says, with its number; the first has 1.
    pub lines: Vec<(usize, Stated)>,
    /// Lines that say nothing that could be checked.
    pub malformed: Vec<(usize, Malformed)>,
}

impl Manifest {
    /// Reads all lines.
    pub fn parse(text: &[u8]) -> Self {
        let mut manifest = Self::default();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            match Stated::parse(line) {
                Ok(Some(stated)) => manifest.lines.push((number, stated)),
                Ok(None) => {}
                Err(why) => manifest.malformed.push((number, why)),
            }
        }
        manifest
    }

    /// The names, each as it is met on a walk.
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
}
