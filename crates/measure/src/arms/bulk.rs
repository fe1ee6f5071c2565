//! Transfers of a large buffer from this process to another process by a mechanism of the channel.
//!
//! Process A is this process. Process B is a helper, which starts before any buffer exists. All arms (compared
//! variants) of one size share both processes and their buffers, because separate large buffers would exceed the
//! machine's memory. A sample lasts from A's first call until B has all bytes. It includes the CPU time of both
//! processes; B's part is also reported separately.

mod landing;
mod moving;
mod pair;
pub mod receiving;

use serde::Deserialize;
use std::{path::Path, sync::Arc};
use thalweg_channel::bulk::{Mechanism, Options, saved_profile};
use thalweg_core::Tuning;

pub use landing::{DestinationMemory, Residency, at_once, read_through};
pub use moving::BulkArm;
pub use pair::{ProcessPair, pair_of};

/// Parameters of the two processes of a bulk transfer.
#[derive(Clone, Copy, Debug)]
pub struct PairJob<'j> {
    /// The thalweg binary, for the helper process.
    pub program: &'j Path,
    /// Directory for the socket between the processes.
    pub scratch: &'j Path,
    /// Bytes of every buffer.
    pub bytes: usize,
}

/// The parameters of one arm: the mechanism, the memory on both sides, and the work of process B.
#[derive(Clone, Debug)]
pub struct BulkTerms {
    pub tuning: Tuning,
    /// `true` if the choice of a mechanism uses this machine's profile.
    pub uses_profile: bool,
    /// The state of the destination memory.
    pub residency: Residency,
    pub source: BulkSource,
    /// `true` if B reads all bytes as part of the operation.
    pub reads: bool,
    /// `true` if page faults are part of an operation.
    pub faults: bool,
    /// `true` if A changes a byte of the source before sending it, to test that B detects a wrong byte.
    pub spoils: bool,
}

/// The source memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkSource {
    #[default]
    Private,
    /// Memory lent by the channel. Writing the data to it is not part of the operation.
    Born,
}

impl BulkTerms {
    /// Returns the options to open the sender.
    fn options(&self, mechanism: Option<&dyn Mechanism>, bytes: usize) -> Options {
        // Like a user's sender, ignores a profile that is missing or was measured on another machine.
        let profile =
            if mechanism.is_none() && self.uses_profile { saved_profile().ok() } else { None };
        Options {
            only: mechanism.map(|mechanism| mechanism.info().name.to_owned()),
            tuning: self.tuning.clone(),
            measured: profile.map(Arc::new),
            will_loan: self.source == BulkSource::Born,
            size: Some(bytes as u64),
            ..Options::default()
        }
    }
}
