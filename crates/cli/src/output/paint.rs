//! Colour, where somebody looks and did not forbid it.

use std::io::IsTerminal;

use crate::args::Color;

/// Whether standard output gets colour.
pub fn wanted(choice: Color) -> bool {
    match choice {
        Color::Always => true,
        Color::Never => false,
        // https://no-color.org: set and not empty.
        Color::Auto => {
            std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && std::io::stdout().is_terminal()
        }
    }
}

/// The line in bold, if colour is wanted.
pub fn strong(line: &str, color: bool) -> String {
    if color { format!("\x1b[1m{line}\x1b[0m") } else { line.to_owned() }
}

/// The words in green, yellow or red, if colour is wanted. The words must say it too.
pub fn tinted(words: &str, tint: Tint, color: bool) -> String {
    if color { format!("\x1b[{}m{words}\x1b[0m", tint as u8) } else { words.to_owned() }
}

/// What a colour says.
#[derive(Clone, Copy, Debug)]
pub enum Tint {
    /// It does not hold.
    Red = 31,
    /// It holds.
    Green = 32,
    /// Nobody knows.
    Yellow = 33,
}
