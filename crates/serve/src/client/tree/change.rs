//! Changes of single entries.

use thalweg_tree::{AttributeDifferences, ChangeAction};

/// A change of an entry: what was done, and the differences that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub action: ChangeAction,
    pub differs: AttributeDifferences,
}

impl EntryChange {
    /// The entry did not exist.
    pub fn created() -> Self {
        Self { action: ChangeAction::Create, differs: AttributeDifferences::default() }
    }

    /// The entry was replaced.
    pub fn replaced(differs: AttributeDifferences) -> Self {
        Self { action: ChangeAction::Replace, differs }
    }

    /// Only attributes changed.
    pub fn adjusted(differs: AttributeDifferences) -> Self {
        Self { action: ChangeAction::Attributes, differs }
    }
}
