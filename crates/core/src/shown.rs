//! Names and words of others on their way to a terminal. Whatever would steer it, or pass for a line
//! of ours, is written out; nothing else is changed, so it is for people and not for a shell.

use std::{
    ffi::OsStr,
    fmt::{self, Write},
    os::unix::ffi::OsStrExt,
};

/// Shows a name or a sentence as `\u{1b}[31m`, `\n`, `\xff`, where it has such things in it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    text: &'a OsStr,
    /// Lines stay lines.
    lines: bool,
}

/// A name of a file, or words from another process: on one line, whatever is in it.
pub fn shown<T: AsRef<OsStr> + ?Sized>(text: &T) -> Shown<'_> {
    Shown { text: text.as_ref(), lines: false }
}

/// A whole message, which may have several lines.
pub fn shown_lines(text: &str) -> Shown<'_> {
    Shown { text: text.as_ref(), lines: true }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.text.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if steers(c) && !(self.lines && c == '\n') {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Control characters, those of eight bits too; line breaks of Unicode; and what turns the order of
/// the letters around, so that a name reads as another.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out_and_the_rest_stays() {
        let plain = "caf\u{e9} \u{3000}\u{1f600} a\\b 'c' \"d\"";
        assert_eq!(shown(plain).to_string(), plain);
        let hostile = "a\x1b[2J\r\nb\t\x07\x7f\u{9b}31m\u{202e}gpj\u{2028}";
        let written = "a\\u{1b}[2J\\r\\nb\\t\\u{7}\\u{7f}\\u{9b}31m\\u{202e}gpj\\u{2028}";
        assert_eq!(shown(hostile).to_string(), written);
        assert_eq!(shown(OsStr::from_bytes(b"x\xff\x9b1\xc3")).to_string(), "x\\xff\\x9b1\\xc3");
        assert_eq!(shown_lines("a\nb\x1b").to_string(), "a\nb\\u{1b}");
    }
}
