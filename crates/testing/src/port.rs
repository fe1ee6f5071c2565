//! Ports that stay free for a server.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// A reserved port of 127.0.0.1. A socket is bound to it and never listens, so connections are refused, and the kernel
/// gives the port to no other process. A server can bind it by its number, because both sockets set SO_REUSEADDR.
#[derive(Debug)]
pub struct ReservedPort {
    _held: OwnedFd,
    /// The number of the port.
    pub number: u16,
}

impl ReservedPort {
    /// Reserves any free port.
    ///
    /// # Panics
    /// If no port is free.
    #[expect(clippy::new_without_default, reason = "each call takes another port")]
    pub fn new() -> Self {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let held = net::socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        net::sockopt::set_socket_reuseaddr(&held, true).expect("SO_REUSEADDR");
        net::bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let bound = net::getsockname(&held).expect("an address");
        let number = SocketAddrV4::try_from(bound).expect("an IPv4 address").port();
        Self { _held: held, number }
    }
}
