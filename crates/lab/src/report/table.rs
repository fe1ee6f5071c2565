//! A table as templates take it: a caption, heads, and rows that begin with their own head.

use serde::Serialize;

/// A table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The heads of the columns.
    pub columns: Vec<String>,
    /// The rows, as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// How it looks: names of CSS classes, ours.
    pub class: String,
    /// A drawing before the text that only repeats it.
    pub key: Option<String>,
    /// Further lines.
    pub more: Vec<String>,
}

impl Table {
    /// An empty one.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl Cell {
    /// With a class.
    pub fn styled(text: impl Into<String>, class: impl Into<String>) -> Self {
        Self { text: text.into(), class: class.into(), ..Self::default() }
    }

    /// A figure, set to the right.
    pub fn figure(text: impl Into<String>) -> Self {
        Self::styled(text, "figure")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, "")
    }
}
