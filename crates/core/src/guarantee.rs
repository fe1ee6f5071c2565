//! Guarantees that the caller requires of a transfer.

use serde::{Deserialize, Serialize};

/// Guarantees that hold once a transfer has returned.
///
/// A mechanism *gives* them for each pair of endpoints; a transfer *needs* them. The planner never
/// chooses a mechanism that gives less than the transfer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// `true` if the sink gets the bytes as they were at the time of the call. Later writes to the
    /// source never change the bytes in the sink.
    pub stable: bool,
    /// `true` if source and sink share no page of memory afterwards.
    pub private: bool,
    /// `true` if the bytes are on stable storage when the transfer returns. The driver calls
    /// `fdatasync`; no mechanism gives this guarantee.
    pub durable: bool,
}

impl Guarantees {
    /// The guarantees of a copy: the sink is independent of the source. A clone (copy on write)
    /// gives them too. So does moving bytes out of a pipe or socket, because no process can write
    /// to those bytes any more.
    pub const COPIED: Self = Self { stable: true, private: true, durable: false };
    /// Pages remain shared with a source that may still be written. Later writes to the source may
    /// change the bytes in the sink.
    pub const SHARED: Self = Self { stable: false, private: false, durable: false };

    /// Returns `true` if a mechanism with the guarantees `self` is sufficient for a transfer that
    /// needs `needs`. Ignores `durable`, because the driver can add it to any mechanism.
    pub fn cover(self, needs: Self) -> bool {
        (self.stable || !needs.stable) && (self.private || !needs.private)
    }
}

impl Default for Guarantees {
    /// Stable and private, like `read` and `write`.
    fn default() -> Self {
        Self::COPIED
    }
}

/// The cost that a plan minimizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Least wall time.
    #[default]
    Wall,
    /// Least CPU time, user and system.
    Cpu,
    /// Least private memory: buffers, maps and pipes.
    Memory,
}
