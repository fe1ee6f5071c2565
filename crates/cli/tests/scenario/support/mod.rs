//! Helpers of the scenarios: running the binary, scratch directories, mounts, skips.

pub mod deny;
pub mod fleet;
pub mod fuse;
pub mod growth;
pub mod interrupted;
pub mod loop_disk;
pub mod methods;
pub mod mounts;
pub mod run;
pub mod schema;
pub mod scratch;
pub mod served;
pub mod skip;
pub mod slow_disk;
pub mod sshd;

pub use interrupted::interrupted;
pub use methods::{file_methods, methods_calling};
pub use mounts::mounts;
pub use run::{Ran, Running, run, shell, thalweg};
pub use scratch::Scratch;
pub use served::Served;
pub use skip::skip;
pub use thalweg_testing::{bytes, names};
