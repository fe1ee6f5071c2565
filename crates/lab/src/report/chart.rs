//! A figure for templates.

use serde::Serialize;

use super::table::ReportTable;
use crate::study::{file::StudyFile, result::StudyResult};

/// One or two drawings that belong together, with their data as a table.
#[derive(Clone, Debug, Serialize)]
pub struct ReportChart {
    /// Identifier, unique on the page.
    pub id: String,
    pub caption: String,
    pub note: String,
    /// The drawings as complete, escaped SVG.
    pub drawings: Vec<String>,
    pub legend: Vec<LegendEntry>,
    /// All data of the drawings, as text.
    pub table: ReportTable,
}

#[derive(Clone, Debug, Serialize)]
pub struct LegendEntry {
    /// The symbol, as a drawing.
    pub key: String,
    pub text: String,
    /// An additional remark.
    pub note: Option<String>,
}

impl LegendEntry {
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
    pub study: Option<&'s StudyFile>,
}
