//! Fetches a file from a server, completely or not at all.
//!
//! [`fetch`] sends range requests from the start, so that it can resume after any interruption. The pure function
//! [`resume::classify_response`] has the rules for resuming. This module prints nothing.

mod ask;
#[doc(hidden)]
mod block_digests;
pub mod block_index;
mod body;
mod channels;
mod connect;
mod deadline;
mod digest;
mod download;
mod error;
mod fetch;
pub mod head;
mod in_memory;
mod netrc;
mod options;
mod peer;
mod peer_root;
mod proxy;
mod pull;
mod remote_command;
mod request;
pub mod resume;
mod retry;
mod scaler;
mod spans;
mod sums;
mod target;
#[cfg(feature = "tls")]
mod tls;
pub mod tree;
pub mod validator;
mod watcher;

pub use crate::plans::Policy;
pub use channels::{Channels, StreamRequest};
pub use digest::Expected;
pub use error::FetchError;
pub use fetch::{FetchFailure, Fetched, fetch};
pub use netrc::Netrc;
pub use options::{BodySettings, FetchOptions};
pub use peer_root::{PeerFile, PeerRoot, report_end, root_of};
pub use proxy::Proxies;
pub use remote_command::{LineSink, RemoteChild, RemoteCommand, in_words};
pub use request::{Extra, header};
pub use retry::Answered;
pub use scaler::Connections;
pub use sums::DigestList;
pub use target::FetchUrl;
#[cfg(feature = "tls")]
pub use tls::TlsTrust;
pub use watcher::{FetchProgress, FetchWatcher};

/// Placeholder: a build without TLS verifies no certificates.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug, Default)]
pub struct TlsTrust;
