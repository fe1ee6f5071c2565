//! The head of an answer: status line and headers.

use std::fmt::{Display, Write};

use crate::http::status::HttpStatus;

// Initial capacity, in bytes; enough for most heads.
const USUAL: usize = 512;

/// A head that is being written.
#[derive(Debug)]
pub struct AnswerHead(String);

impl AnswerHead {
    /// Starts a head with the status line. `date`: the current time as an HTTP date.
    pub fn new(HttpStatus(code, words): HttpStatus, date: &str) -> Self {
        let mut head = String::with_capacity(USUAL);
        // Writing into a `String` never fails.
        let _ = write!(head, "HTTP/1.1 {code} {words}\r\nServer: thalweg\r\nDate: {date}\r\n");
        Self(head)
    }

    /// Appends a header line. The caller must encode line breaks in values from a client or a file.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        // Writing into a `String` never fails.
        let _ = write!(self.0, "{name}: {value}\r\n");
        self
    }

    /// Appends the empty line and returns the bytes.
    pub fn bytes(mut self) -> Vec<u8> {
        self.0.push_str("\r\n");
        self.0.into_bytes()
    }
}
