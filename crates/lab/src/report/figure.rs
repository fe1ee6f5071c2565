//! A figure as templates take it.

use serde::Serialize;

use super::table::Table;
use crate::study::{file::Study, result::StudyResult};

/// One or two drawings that belong together, and the figures they are made of.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Unique on the page.
    pub id: String,
    pub caption: String,
    pub note: String,
    /// The drawings, escaped and whole.
    pub drawings: Vec<String>,
    pub legend: Vec<Entry>,
    /// Everything that is drawn, as text.
    pub table: Table,
    /// Whether it is folded away at first.
    pub folded: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The sign: a drawing.
    pub key: String,
    pub text: String,
    /// What else is to be known of it.
    pub note: Option<String>,
}

impl Entry {
    /// An entry without a note.
    pub fn new(key: String, text: impl Into<String>) -> Self {
        Self { key, text: text.into(), note: None }
    }
}

/// What the figures of a study share.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'s> {
    pub id: &'s str,
    pub result: &'s StudyResult,
    pub study: Option<&'s Study>,
}
