//! Checks that the records of a list are complete and consistent, in constant memory.

use super::{DirectoryContents, ListRecord, ListTotals, ManifestKind};

/// State of the check of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCheck {
    /// Entries and bytes until now. The other numbers are known at the end.
    pub totals: ListTotals,
    pub files: u64,
    /// Readable directories that have no group yet.
    waiting: u64,
    has_group: bool,
    is_complete: bool,
}

impl ListCheck {
    /// Adds the next record. The error is the reason why the list is invalid.
    pub fn add(&mut self, record: &ListRecord) -> Result<(), &'static str> {
        if self.is_complete {
            return Err("a record follows the end record");
        }
        match record {
            ListRecord::Entry(entry) => {
                let is_first = self.totals.entries == 0;
                if entry.name.is_empty() != is_first || !is_first && !self.has_group {
                    return Err(
                        "an entry has no name, or the first entry is not the listed directory",
                    );
                }
                self.totals.entries += 1;
                match &entry.kind {
                    ManifestKind::Directory(contents) => {
                        self.waiting += u64::from(*contents == DirectoryContents::Listed);
                    }
                    ManifestKind::File(file) => {
                        self.files += 1;
                        let bytes = self.totals.bytes.checked_add(file.size);
                        self.totals.bytes = bytes.ok_or("the total size of the files overflows")?;
                    }
                    ManifestKind::Link(_) | ManifestKind::Special(_) => {}
                }
            }
            ListRecord::Group(_) => {
                let waiting = self.waiting.checked_sub(1);
                self.waiting = waiting.ok_or("a group of entries belongs to no directory")?;
                self.has_group = true;
            }
            ListRecord::End(totals) => {
                if self.waiting > 0 || self.totals.entries == 0 {
                    return Err("the entries of a directory are missing");
                }
                let ListTotals { entries, bytes, .. } = *totals;
                if (entries, bytes) != (self.totals.entries, self.totals.bytes) {
                    return Err("the list does not match its totals");
                }
                self.totals = *totals;
                self.is_complete = true;
            }
        }
        Ok(())
    }

    /// Returns `true` if the end was reached.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}
