//! Files over HTTP/1.1: a server that shares a folder, and a client that brings a file or a tree, whole and true.
//!
//! Bodies of plain connections are moved by the mechanisms of `thalweg-core`; files are published by its one
//! publisher. No TLS in the server, by decision; no async runtime.

#![forbid(unsafe_code)]
// Only the command line uses it: a comment that repeats a name helps no reader.
#![allow(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
#[doc(hidden)]
pub mod http;
pub mod manifest;
mod plans;
pub mod server;
