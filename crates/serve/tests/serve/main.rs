//! The server and the client through the public interface.
#![allow(clippy::unwrap_used)]

mod connections;
mod fetch;
mod joins;
mod lies;
mod owners;
mod redirects;
mod serving;
mod support;
mod trees;
