//! Brings a file of a server, whole or not at all.
//!
//! [`fetch`] asks for ranges from the first request on, so that whatever interrupts it can be gone on
//! with; the rules of that are one pure function, [`resume::judge`]. It prints nothing.

mod ask;
mod body;
mod connect;
mod digest;
mod error;
mod fetch;
pub mod head;
mod landing;
mod options;
mod patience;
mod request;
pub mod resume;
mod retry;
mod target;
#[cfg(feature = "tls")]
mod tls;
pub mod tree;

pub use body::Way;
pub use digest::Expected;
pub use error::Error;
pub use fetch::{Failed, Fetched, Progress, Watcher, fetch};
pub use options::Options;
pub use request::{Extra, header};
pub use target::Target;
#[cfg(feature = "tls")]
pub use tls::Trust;

/// Without TLS nobody has to be trusted.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug, Default)]
pub struct Trust;
