//! Memory that Python and this module access at the same time. All unsafe code of the package is in this directory.

pub mod count;
mod descriptor;
mod exports;
mod given;
mod loan;
mod message;
mod pool;

use pyo3::prelude::*;

pub use count::references;
pub use descriptor::own_descriptor;
pub use given::HeldBuffer;
pub use loan::{PyLoan, SharedProducer};
pub use message::PyMessage;
pub use pool::{PooledRoom, RoomPool};

/// Bytes that this process could take, as far as the machine and its control groups let it; None where nobody says.
#[pyfunction]
pub fn memory_available() -> Option<u64> {
    thalweg_sys::host::memory_available()
}
