//! Wraps text to the width of the terminal.

use super::table::width;

/// Wraps the text into lines with this indentation, no longer than the terminal is wide. A longer word has its own
/// line.
pub fn wrapped(text: &str, indent: usize) -> String {
    in_columns(text, indent, usize::from(width()))
}

fn in_columns(text: &str, indent: usize, columns: usize) -> String {
    let blanks = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = indent + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && longer > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines.iter().flat_map(|line| [&blanks, line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_terminal_unless_one_word_is() {
        let text = in_columns("some words that go on and a-very-long-word-indeed", 2, 16);
        assert_eq!(text, "  some words\n  that go on and\n  a-very-long-word-indeed\n");
        assert_eq!(in_columns("", 2, 16), "");
    }
}
