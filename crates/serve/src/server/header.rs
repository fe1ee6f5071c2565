//! The head of an answer.

use std::fmt::{Display, Write};

use crate::http::status::Status;

// What most heads have room in.
const USUAL: usize = 512;

/// A head that is being written.
#[derive(Debug)]
pub struct Header(String);

impl Header {
    /// Begins one; `date` is that of now, as headers have it.
    pub fn new(Status(code, words): Status, date: &str) -> Self {
        let mut head = String::with_capacity(USUAL);
        // Into a string this never fails.
        let _ = write!(head, "HTTP/1.1 {code} {words}\r\nServer: thalweg\r\nDate: {date}\r\n");
        Self(head)
    }

    /// Adds a line. Nothing here comes from a client or a file unless its line breaks are encoded.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        // Into a string this never fails.
        let _ = write!(self.0, "{name}: {value}\r\n");
        self
    }

    /// Ends it.
    pub fn bytes(mut self) -> Vec<u8> {
        self.0.push_str("\r\n");
        self.0.into_bytes()
    }
}
