//! Changes of single entries.

use thalweg_tree::{AttributeDifferences, ChangeAction};

/// A change of an entry: what was done, and the differences that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub action: ChangeAction,
    pub differs: AttributeDifferences,
    /// `true` if the entry is a further name of a file.
    pub is_linked: bool,
}

impl EntryChange {
    /// Returns the change of an entry that did not exist.
    pub fn created() -> Self {
        Self {
            action: ChangeAction::Create,
            differs: AttributeDifferences::default(),
            is_linked: false,
        }
    }

    /// Returns the change of an entry that was replaced.
    pub fn replaced(differs: AttributeDifferences) -> Self {
        Self { action: ChangeAction::Replace, differs, is_linked: false }
    }

    /// Returns the change of an entry that became a hard link. `replaces`: `true` if an entry had its name.
    pub fn linked(replaces: bool) -> Self {
        let differs = AttributeDifferences { content: replaces, ..AttributeDifferences::default() };
        let created = if replaces { Self::replaced(differs) } else { Self::created() };
        Self { is_linked: true, ..created }
    }

    /// Returns the change of a symbolic link or special file with these differences.
    pub fn of_node(differs: AttributeDifferences) -> Self {
        let is_other = differs.kind || differs.content;
        if is_other { Self::replaced(differs) } else { Self::adjusted(differs) }
    }

    /// Returns the change of an entry of which only attributes changed.
    pub fn adjusted(differs: AttributeDifferences) -> Self {
        Self { action: ChangeAction::Attributes, differs, is_linked: false }
    }
}
