//! Files over HTTP/1.1: a server that shares a directory, and a client that downloads and verifies a file or a
//! directory tree.
//!
//! The mechanisms of `thalweg-core` move the bodies of unencrypted connections, and its module `atomic_file` creates
//! the destination files. By decision, the server has no TLS, and the crate uses no async runtime.

#![forbid(unsafe_code)]
// Only the command line and the fuzz targets use this crate, and a comment that repeats a name helps no reader.
#![allow(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[doc(hidden)]
pub mod blocks;
pub mod client;
#[doc(hidden)]
pub mod compression;
#[doc(hidden)]
pub mod http;
pub mod manifest;
mod plans;
pub mod remote;
pub mod server;
mod stream;

pub use compression::{CompressedStream, frames::CompressionFailure};
pub use stream::{ByteStream, RestoredFlags};
