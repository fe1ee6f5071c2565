//! Fetching whole folders: from our own server, and from servers whose lists lie.
#![allow(clippy::unwrap_used)]

mod honest;
mod hostile;
mod support;
