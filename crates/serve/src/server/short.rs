//! Why an answer ends before its last byte.

use thalweg_sys::Errno;

/// Why an answer stays short.
#[derive(Debug)]
pub enum Short {
    /// The file is not what it was when the answer began.
    Changed,
    /// The client is gone, or cannot be reached.
    Client(Errno),
    /// The file cannot be read.
    File(Errno),
    /// What was to be found on the way is not there.
    Supply(String),
    /// What its head has to say is known now: it is to be made once more.
    Again,
}

impl Short {
    /// For the log.
    pub fn words(&self) -> String {
        let errno = |errno: Errno| std::io::Error::from(errno);
        match self {
            Self::Changed => "changed".to_owned(),
            Self::Client(error) => format!("the client is gone: {}", errno(*error)),
            Self::File(error) => format!("cannot read the file: {}", errno(*error)),
            Self::Supply(error) => error.clone(),
            Self::Again => "not known".to_owned(),
        }
    }
}
