//! A figure for templates.

use serde::Serialize;

use super::table::Table;
use crate::study::{file::Study, result::StudyResult};

/// One or two drawings that belong together, with their data as a table.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Identifier, unique on the page.
    pub id: String,
    pub caption: String,
    pub note: String,
    /// The drawings as complete, escaped SVG.
    pub drawings: Vec<String>,
    pub legend: Vec<Entry>,
    /// All data of the drawings, as text.
    pub table: Table,
}

#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The symbol, as a drawing.
    pub key: String,
    pub text: String,
    /// An additional remark.
    pub note: Option<String>,
}

impl Entry {
    /// Creates an entry without a note.
    pub fn new(key: String, text: impl Into<String>) -> Self {
        Self { key, text: text.into(), note: None }
    }
}

/// Data shared by the figures of a study.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'s> {
    pub id: &'s str,
    pub result: &'s StudyResult,
    pub study: Option<&'s Study>,
}
