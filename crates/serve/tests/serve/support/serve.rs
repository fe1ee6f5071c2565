//! Starts a server for a test, at a free port.

use std::{net::SocketAddr, path::Path};

use thalweg_serve::server::{ListenAddress, RunningServer, ServeOptions};

/// Starts a server on this root with further options.
pub fn serve(root: &Path, change: impl FnOnce(&mut ServeOptions)) -> RunningServer {
    let mut options = ServeOptions::new(root);
    options.listen = vec![ListenAddress::Tcp(([127, 0, 0, 1], 0).into())];
    change(&mut options);
    RunningServer::start(options).unwrap()
}

/// Returns the address of the server.
pub fn address(server: &RunningServer) -> SocketAddr {
    let Some(ListenAddress::Tcp(address)) = server.addresses().first() else { panic!() };
    *address
}
