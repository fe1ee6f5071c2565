//! Observer of a fetch.

use thalweg_core::Cancelled;

/// Progress of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchProgress {
    /// Bytes present before this run.
    pub resumed: u64,
    /// Bytes present now.
    pub there: u64,
    /// Size of the file in bytes, if the server sent it.
    pub size: Option<u64>,
}

/// Observer of a fetch.
pub trait FetchWatcher: Sync {
    /// Called while bytes are received.
    fn progress(&self, now: FetchProgress) -> Result<(), Cancelled>;
    /// Called regularly while no bytes are received; an error cancels the fetch.
    fn check_cancelled(&self) -> Result<(), Cancelled>;
    /// Called with a message for the user.
    fn report(&self, message: &str);
}
