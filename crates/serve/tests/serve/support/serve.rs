//! Starts a server for a test, at a port of its own.

use std::{net::SocketAddr, path::Path};

use thalweg_serve::server::{Address, Options, Running};

/// A server on this root that is told something more.
pub fn serve(root: &Path, change: impl FnOnce(&mut Options)) -> Running {
    let mut options = Options::new(root);
    options.listen = vec![Address::Tcp(([127, 0, 0, 1], 0).into())];
    change(&mut options);
    Running::start(options).unwrap()
}

/// Where it listens.
pub fn address(server: &Running) -> SocketAddr {
    let Some(Address::Tcp(address)) = server.addresses().first() else { panic!() };
    *address
}
