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

/// Returns the memory in bytes that the machine and the control groups (cgroups) still allow this process to use. None if
/// it is unknown.
#[pyfunction]
pub fn memory_available() -> Option<u64> {
    thalweg_sys::host::memory_available()
}
