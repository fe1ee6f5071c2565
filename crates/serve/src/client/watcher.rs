//! Somebody who looks on while a file is fetched.

use thalweg_core::Cancelled;

/// How far a fetch is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes that were there before.
    pub resumed: u64,
    /// Bytes that are there.
    pub there: u64,
    /// Bytes of the file, where the server says.
    pub size: Option<u64>,
}

/// Somebody who looks on.
pub trait Watcher: Sync {
    /// Called while bytes come.
    fn progress(&self, now: Progress) -> Result<(), Cancelled>;
    /// Called now and then while nothing does.
    fn go_on(&self) -> Result<(), Cancelled>;
    /// What a person may want to know meanwhile.
    fn tell(&self, news: &str);
}
