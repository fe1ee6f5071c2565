//! Escapes names and foreign text for output to a terminal, a page or a table. For a terminal, this changes only the
//! characters that could control it or imitate a line of thalweg's output. The output is for people, not for a shell.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt::{self, Write},
    os::unix::ffi::OsStrExt,
};

/// Displays a name or a message with control characters and invalid bytes escaped as `\u{1b}`, `\n`, `\xff`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a OsStr,
    /// `true` to keep line feeds.
    lines: bool,
}

/// Escapes a file name, or text from another process, to fit on one line.
pub fn shown<T: AsRef<OsStr> + ?Sized>(text: &T) -> Escaped<'_> {
    Escaped { text: text.as_ref(), lines: false }
}

/// Escapes a whole message, which may have several lines.
pub fn shown_lines(text: &str) -> Escaped<'_> {
    Escaped { text: text.as_ref(), lines: true }
}

impl fmt::Display for Escaped<'_> {
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

/// Escapes text for HTML and SVG, between tags and inside quotes.
pub fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Quotes a field of comma-separated values if RFC 4180 requires it.
pub fn csv(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// Returns `true` for control characters including C1, Unicode line breaks, and bidirectional controls, which can make
/// one name look like another.
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

    #[test]
    fn markup_and_separators_stay_text() {
        assert_eq!(html("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(csv("plain text"), "plain text");
        assert_eq!(csv("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
