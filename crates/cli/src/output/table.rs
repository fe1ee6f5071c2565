//! Plain tables: no frames, columns as wide as what is in them, long cells wrapped.

use comfy_table::{ContentArrangement, Table, presets};
use rustix::termios::tcgetwinsize;

/// Columns when nobody says how wide the terminal is.
const COLUMNS: u16 = 120;

/// A table with this head, or with none.
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

/// The table as text, without the blanks at the ends of its lines.
pub fn render(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The columns of the terminal, or what the environment says.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let told = || tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col);
    columns.or_else(told).filter(|columns| *columns >= 40).unwrap_or(COLUMNS)
}
