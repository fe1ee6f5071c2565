//! The reasons for which an answer ends before its last byte.

use thalweg_sys::Errno;

/// The reason for which an answer is incomplete.
#[derive(Debug)]
pub enum Short {
    /// The file has changed since the answer began.
    Changed,
    /// The client has disconnected or is unreachable.
    Client(Errno),
    /// The file cannot be read.
    File(Errno),
    /// The rest of a produced body is not available.
    Supply(String),
    /// The hash that the head needs is known now: create the answer again.
    Again,
}

impl Short {
    /// Returns the text for the log.
    pub fn words(&self) -> String {
        let errno = |errno: Errno| std::io::Error::from(errno);
        match self {
            Self::Changed => "file changed".to_owned(),
            Self::Client(error) => format!("client disconnected: {}", errno(*error)),
            Self::File(error) => format!("cannot read the file: {}", errno(*error)),
            Self::Supply(error) => error.clone(),
            Self::Again => "digest not ready".to_owned(),
        }
    }
}
