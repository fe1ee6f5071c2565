//! What a copy that did not come to its end has left, and how to go on with it or remove it.

use std::path::PathBuf;
use thalweg_core::shown;
use thalweg_tree::TreeReport;

use crate::exit::Exit;

/// More paths than this are only counted.
const SHOWN: usize = 3;

/// What is left.
pub struct Left<'r> {
    /// What keeps its temporary name.
    unfinished: &'r [PathBuf],
    /// Something has its final name.
    has_copied: bool,
    /// `--resume` was given already.
    resumes: bool,
    /// A folder has its final name that was not there before: the same command would copy into it.
    made_folder: bool,
}

impl<'r> Left<'r> {
    /// What `report` tells. `makes_folder`: the destination was to become a new folder.
    pub fn of(report: &'r TreeReport, resumes: bool, makes_folder: bool) -> Self {
        let has_copied = report.files + report.links + report.specials > 0;
        let made_folder = makes_folder && report.halted.is_none();
        Self { unfinished: &report.unfinished, has_copied, resumes, made_folder }
    }

    /// Whether the same command with `--resume` goes on.
    fn goes_on(&self) -> bool {
        !self.made_folder && (self.has_copied || !self.unfinished.is_empty())
    }

    /// The exit status of a copy that ended early and was not interrupted.
    pub fn exit(&self) -> Exit {
        if self.goes_on() { Exit::Incomplete } else { Exit::Failed }
    }

    /// What is left, and what to do next.
    pub fn advice(&self) -> String {
        if !self.has_copied && self.unfinished.is_empty() {
            return "nothing was copied, and nothing is left of it".to_owned();
        }
        let again = match (self.made_folder, self.resumes) {
            (true, _) => "the same command with --resume and -T goes on",
            (false, true) => "the same command goes on",
            (false, false) => "the same command with --resume goes on",
        };
        if self.unfinished.is_empty() {
            return format!("not everything was copied; {again}");
        }
        let first = self.unfinished.iter().take(SHOWN);
        let first: Vec<_> = first.map(|path| format!("'{}'", shown(path))).collect();
        let more = match self.unfinished.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let paths = first.join(", ");
        format!("not everything was copied; unfinished: {paths}{more}; {again}, rm -r removes it")
    }
}
