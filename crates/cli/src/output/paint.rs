//! Colour, if standard output is a terminal and the user did not disable it.

use std::io::IsTerminal;

use crate::args::Color;

/// Returns `true` if standard output should be coloured.
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

/// Returns the line in bold, if colour is wanted.
pub fn strong(line: &str, color: bool) -> String {
    if color { format!("\x1b[1m{line}\x1b[0m") } else { line.to_owned() }
}

/// Returns the words in colour, if colour is wanted. The words must convey the meaning without it.
#[cfg_attr(not(feature = "lab"), allow(dead_code))]
pub fn tinted(words: &str, tint: Tint, color: bool) -> String {
    if color { format!("\x1b[{}m{words}\x1b[0m", tint as u8) } else { words.to_owned() }
}

/// The meaning of a colour.
#[cfg_attr(not(feature = "lab"), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub enum Tint {
    /// The statement is false.
    Red = 31,
    /// The statement is true.
    Green = 32,
    /// The result is unknown.
    Yellow = 33,
}
