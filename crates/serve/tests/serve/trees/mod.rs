//! Fetching whole folders: from our own server, and from servers whose lists lie.

mod honest;
mod hostile;
mod support;
