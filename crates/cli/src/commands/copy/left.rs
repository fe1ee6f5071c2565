//! Describes what an interrupted or failed copy leaves behind, and how to resume or remove it.

use std::{
    ffi::OsStr,
    fmt::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};
use thalweg_core::{
    atomic_file::name::{JOURNAL, PART},
    shown,
};
use thalweg_tree::TreeReport;

use crate::{exit::Exit, output::quantity};

/// Largest number of paths that a message names. It only counts further paths.
const SHOWN: usize = 3;

/// The copy that the user asked for.
pub struct WantedCopy {
    /// `true` if the source is one file.
    pub is_single_file: bool,
    /// `true` if `--resume` was given.
    pub resumes: bool,
    /// `true` if the destination was to become a new directory.
    pub makes_folder: bool,
}

pub struct CopyLeftovers<'r> {
    /// Files that keep their temporary name.
    unfinished: &'r [PathBuf],
    /// The journals of these files, in the same directories.
    journals: Vec<PathBuf>,
    /// Existing files that were written in part.
    torn: &'r [PathBuf],
    /// Bytes written.
    bytes: u64,
    /// `true` if at least one file has its final name.
    has_copied: bool,
    is_single_file: bool,
    resumes: bool,
    /// `true` if the new directory has its final name. A repeated command would copy the source into this directory.
    made_folder: bool,
}

impl<'r> CopyLeftovers<'r> {
    /// Extracts from `report` what the copy left behind.
    pub fn of(report: &'r TreeReport, wanted: &WantedCopy) -> Self {
        let has_copied = report.files + report.links + report.specials > 0;
        Self {
            unfinished: &report.unfinished,
            journals: report.unfinished.iter().filter_map(|path| journal(path)).collect(),
            torn: &report.torn,
            bytes: report.bytes,
            has_copied,
            is_single_file: wanted.is_single_file,
            resumes: wanted.resumes,
            made_folder: wanted.makes_folder && report.halted.is_none(),
        }
    }

    /// Returns `true` if the same command with `--resume` continues the copy.
    fn is_resumable(&self) -> bool {
        !self.made_folder && (self.has_copied || !self.unfinished.is_empty())
    }

    /// Returns the exit status of a copy that ended early without an interrupt.
    pub fn exit(&self) -> Exit {
        if self.is_resumable() { Exit::Incomplete } else { Exit::Failed }
    }

    /// Describes what the copy left behind.
    pub fn state(&self) -> String {
        let mut text = if !self.unfinished.is_empty() {
            let missed = if self.is_single_file {
                "the file was not copied completely"
            } else {
                "some files were not copied"
            };
            format!("{missed}; unfinished: {}", listed(self.unfinished))
        } else if self.has_copied {
            "some files were not copied".to_owned()
        } else if self.torn.is_empty() {
            "nothing was copied".to_owned()
        } else {
            "no file was copied completely".to_owned()
        };
        if !self.torn.is_empty() {
            // `bytes` is the total of all files, so it is printed only if it belongs to a single file.
            let is_alone = self.torn.len() == 1 && !self.has_copied;
            let written =
                if is_alone { format!(", {}", quantity::exact(self.bytes)) } else { String::new() };
            let _ = write!(text, "; partly written: {}{written}", listed(self.torn));
        }
        text
    }

    /// Returns what the user can do next; empty if nothing is left to resume or to repair.
    pub fn hint(&self) -> String {
        let again = match (self.made_folder, self.resumes) {
            (true, _) => "run the same command with --resume and -T to continue",
            (false, true) => "run the same command again to continue",
            (false, false) => "run the same command with --resume to continue",
        };
        let mut hint = if !self.unfinished.is_empty() {
            let journals = if self.journals.is_empty() {
                String::new()
            } else {
                format!(", and also {}", listed(&self.journals))
            };
            format!("{again}, or remove the unfinished copy with `rm -r`{journals}")
        } else if self.has_copied {
            again.to_owned()
        } else {
            String::new()
        };
        if !self.torn.is_empty() {
            let next = if hint.is_empty() { "" } else { "; " };
            let _ = write!(hint, "{next}copy partly written files again");
        }
        hint
    }
}

/// Returns the journal beside an unfinished file, if it has one.
fn journal(part: &Path) -> Option<PathBuf> {
    let name = part.file_name()?.as_bytes().strip_suffix(PART)?;
    let journal = part.with_file_name(OsStr::from_bytes(&[name, JOURNAL].concat()));
    journal.symlink_metadata().is_ok().then_some(journal)
}

/// Formats the first paths, and the number of further paths.
fn listed(paths: &[PathBuf]) -> String {
    let first: Vec<_> = paths.iter().take(SHOWN).map(|path| format!("'{}'", shown(path))).collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    first.join(", ") + &more
}
