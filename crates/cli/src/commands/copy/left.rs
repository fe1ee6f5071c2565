//! Describes what an interrupted or failed copy leaves behind, and how to resume or remove it.

use std::{fmt::Write, path::PathBuf};
use thalweg_core::shown;
use thalweg_tree::TreeReport;

use crate::{exit::Exit, output::quantity};

/// Longest list of paths; further ones are only counted.
const SHOWN: usize = 3;

pub struct Left<'r> {
    /// Files that keep their temporary name.
    unfinished: &'r [PathBuf],
    /// Existing files that were written in part.
    torn: &'r [PathBuf],
    /// Bytes written.
    bytes: u64,
    /// `true` if at least one file has its final name.
    has_copied: bool,
    /// `true` if `--resume` was given.
    resumes: bool,
    /// `true` if a new directory has its final name: a repeated command would copy into it.
    made_folder: bool,
}

impl<'r> Left<'r> {
    /// Extracts the leftovers from `report`. `makes_folder`: `true` if the destination was to become a new directory.
    pub fn of(report: &'r TreeReport, resumes: bool, makes_folder: bool) -> Self {
        let has_copied = report.files + report.links + report.specials > 0;
        let made_folder = makes_folder && report.halted.is_none();
        let (unfinished, torn) = (&report.unfinished[..], &report.torn[..]);
        Self { unfinished, torn, bytes: report.bytes, has_copied, resumes, made_folder }
    }

    /// Returns `true` if the same command with `--resume` continues.
    fn goes_on(&self) -> bool {
        !self.made_folder && (self.has_copied || !self.unfinished.is_empty())
    }

    /// Returns the exit status of a copy that ended early without an interrupt.
    pub fn exit(&self) -> Exit {
        if self.goes_on() { Exit::Incomplete } else { Exit::Failed }
    }

    /// Describes the leftovers, and what to do next.
    pub fn advice(&self) -> String {
        let mut text = self.of_the_others();
        if !self.torn.is_empty() {
            // For several files only the total is known.
            let is_alone = self.torn.len() == 1 && !self.has_copied;
            let written =
                if is_alone { format!(", {}", quantity::exact(self.bytes)) } else { String::new() };
            let paths = listed(self.torn);
            let _ = write!(text, "; written in part: {paths}{written}; copy it again");
        }
        text
    }

    fn of_the_others(&self) -> String {
        let again = match (self.made_folder, self.resumes) {
            (true, _) => "the same command with --resume and -T goes on",
            (false, true) => "the same command goes on",
            (false, false) => "the same command with --resume goes on",
        };
        if !self.unfinished.is_empty() {
            let paths = listed(self.unfinished);
            format!("not everything was copied; unfinished: {paths}; {again}, rm -r removes it")
        } else if self.has_copied {
            format!("not everything was copied; {again}")
        } else if self.torn.is_empty() {
            "nothing was copied, and nothing is left of it".to_owned()
        } else {
            "nothing was copied to its end".to_owned()
        }
    }
}

/// Returns the first paths, and the number of further ones.
fn listed(paths: &[PathBuf]) -> String {
    let first: Vec<_> = paths.iter().take(SHOWN).map(|path| format!("'{}'", shown(path))).collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    first.join(", ") + &more
}
