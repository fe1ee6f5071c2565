//! Sockets that listen: one for every worker at an internet address, one for all at a unix socket.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::FileTypeExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with,
    sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay},
};

use super::{error::ServeError, options::Address};

/// A socket that listens, in as many copies as there are workers.
pub struct Listening {
    /// Where it can be reached.
    pub address: Address,
    /// One for each worker.
    pub sockets: Vec<OwnedFd>,
    /// All of them are one socket, at which every worker is woken.
    pub is_shared: bool,
}

const BACKLOG: i32 = 1024;

/// Listens at these addresses; at the usual one, or the next port that is free, if there are none.
pub fn listen_at(addresses: &[Address], workers: usize) -> Result<Vec<Listening>, ServeError> {
    if addresses.is_empty() {
        return Ok(vec![at_next_free(workers)?]);
    }
    addresses.iter().map(|address| at(address, workers)).collect()
}

// So many neighbours are tried.
const PORTS: u16 = 100;

fn at_next_free(workers: usize) -> Result<Listening, ServeError> {
    let first = Address::default();
    let Address::Tcp(usual) = first else { return at(&first, workers) };
    let mut address = usual;
    loop {
        match tcp(address, workers) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() < usual.port() + PORTS =>
            {
                address.set_port(address.port() + 1);
            }
            answer => return answer.map_err(|error| failed(&address.to_string(), error)),
        }
    }
}

fn at(address: &Address, workers: usize) -> Result<Listening, ServeError> {
    match address {
        Address::Tcp(address) => {
            tcp(*address, workers).map_err(|error| failed(&address.to_string(), error))
        }
        Address::Unix(path) => {
            unix(path, workers).map_err(|error| failed(&path.to_string_lossy(), error))
        }
    }
}

fn failed(address: &str, error: io::Error) -> ServeError {
    ServeError::Listen { address: address.to_owned(), error }
}

/// The first socket is bound alone, so that an address somebody else has is taken, also where they share it;
/// then it shares it with the others of ours.
fn tcp(address: SocketAddr, workers: usize) -> io::Result<Listening> {
    let first = socket(address)?;
    bind(&first, &address)?;
    set_socket_reuseport(&first, true)?;
    let first = TcpListener::from(first);
    let address = first.local_addr()?;
    let mut sockets = vec![OwnedFd::from(first)];
    while sockets.len() < workers.max(1) {
        let another = socket(address)?;
        set_socket_reuseport(&another, true)?;
        bind(&another, &address)?;
        sockets.push(another);
    }
    for socket in &sockets {
        listen(socket, BACKLOG)?;
    }
    Ok(Listening { address: Address::Tcp(address), sockets, is_shared: false })
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    set_socket_reuseaddr(&socket, true)?;
    // Answers are put together before they are sent: nothing is gained by waiting for more. What is accepted
    // has the same.
    set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// A name that a dead server has left behind is taken over.
fn unix(path: &Path, workers: usize) -> io::Result<Listening> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_deserted(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        answer => answer?,
    };
    listener.set_nonblocking(true)?;
    let socket = OwnedFd::from(listener);
    let mut sockets = Vec::new();
    while sockets.len() + 1 < workers {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(Listening { address: Address::Unix(path.to_owned()), sockets, is_shared: true })
}

fn is_deserted(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_taken_is_not_shared() {
        let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let ours = listen_at(std::slice::from_ref(&any), 3).unwrap().remove(0);
        assert_eq!(ours.sockets.len(), 3);
        assert!(matches!(at(&ours.address, 2), Err(ServeError::Listen { .. })));
        let Address::Tcp(address) = ours.address else { panic!() };
        drop(ours.sockets);
        assert_eq!(tcp(address, 2).unwrap().address, Address::Tcp(address));
    }

    #[test]
    fn a_name_is_taken_over_from_the_dead_only() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let ours = unix(&path, 2).unwrap();
        assert_eq!(unix(&path, 2).map(|_| ()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(ours);
        unix(&path, 2).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(unix(&file, 1).is_err() && file.exists());
    }
}
