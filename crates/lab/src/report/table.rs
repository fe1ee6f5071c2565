//! A table for templates: a caption, column heads, and rows that start with a row head.

use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ReportTable {
    pub caption: String,
    pub columns: Vec<String>,
    /// The rows, each with as many cells as `columns`.
    pub rows: Vec<Vec<TableCell>>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TableCell {
    pub text: String,
    /// CSS classes of the cell.
    pub class: String,
    /// A symbol before the text. It carries no information that the text does not also give.
    pub key: Option<String>,
    pub more: Vec<String>,
}

impl ReportTable {
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl TableCell {
    pub fn styled(text: impl Into<String>, class: impl Into<String>) -> Self {
        Self { text: text.into(), class: class.into(), ..Self::default() }
    }

    /// Returns a right-aligned number.
    pub fn figure(text: impl Into<String>) -> Self {
        Self::styled(text, "figure")
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::styled(text, "")
    }
}
