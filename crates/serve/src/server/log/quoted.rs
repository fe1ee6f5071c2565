//! Escapes client text for a quoted field of the log, as nginx does.

use std::fmt::{self, Display, Write};

/// Writes quotation marks, backslashes and everything outside printable ASCII as `\xHH`, byte by byte. The field thus
/// contains no quotation mark of its own, and a client cannot forge an escape.
pub fn quoted(text: &str) -> Quoted<'_> {
    Quoted(text)
}

/// See [`quoted`].
pub struct Quoted<'t>(&'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' | ..=0x1f | 0x7f.. => write!(f, "\\x{byte:02X}")?,
                _ => f.write_char(char::from(byte))?,
            }
        }
        Ok(())
    }
}
