//! Plain tables: no frames, columns as wide as their contents, long cells wrapped.

use comfy_table::{ContentArrangement, Table, presets};
use rustix::termios::tcgetwinsize;

/// Columns if the width of the terminal is unknown.
const COLUMNS: u16 = 120;

/// Creates a table with this head, which may be empty.
pub fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width());
    if !head.is_empty() {
        table.set_header(head);
    }
    table
}

/// Renders the table without trailing spaces.
pub fn render(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Returns the width of the terminal in columns. The variable `COLUMNS` takes precedence.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col);
    columns.or_else(terminal).filter(|columns| *columns >= 40).unwrap_or(COLUMNS)
}
