//! Listening sockets: one per worker for an Internet address, one shared by all workers for a Unix socket.

use std::{
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStringExt,
            fs::FileTypeExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    io::{Errno, ioctl_fionbio},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, ipproto, listen,
        socket_with,
        sockopt::{
            set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay,
            socket_acceptconn,
        },
    },
};

use super::{error::ServeError, options::ListenAddress};

/// A listening address, with one descriptor per worker.
pub struct Listening {
    /// The address at which clients can connect.
    pub address: ListenAddress,
    /// One descriptor per worker.
    pub sockets: Vec<OwnedFd>,
    /// `true` if all descriptors refer to one socket. Without `EPOLLEXCLUSIVE`, each connection would wake every
    /// worker.
    pub is_shared: bool,
    /// Path of a Unix socket that this server created; removed when the server ends.
    pub name: Option<PathBuf>,
}

const BACKLOG: i32 = 1024;

/// Listens on the given addresses and uses the sockets that were passed in. If there are neither, listens on the
/// default address or the next free port.
pub fn listen_at(
    addresses: &[ListenAddress],
    sockets: Vec<OwnedFd>,
    workers: usize,
) -> Result<Vec<Listening>, ServeError> {
    if addresses.is_empty() && sockets.is_empty() {
        return Ok(vec![at_next_free(workers)?]);
    }
    let own = addresses.iter().map(|address| at(address, workers));
    own.chain(sockets.into_iter().map(|socket| handed(socket, workers))).collect()
}

// Number of ports that are tried after the default one.
const PORTS: u16 = 100;

fn at_next_free(workers: usize) -> Result<Listening, ServeError> {
    let first = ListenAddress::default();
    let ListenAddress::Tcp(usual) = first else { return at(&first, workers) };
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

fn at(address: &ListenAddress, workers: usize) -> Result<Listening, ServeError> {
    match address {
        ListenAddress::Tcp(address) => {
            let listening = match tcp(*address, workers) {
                Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
                    tcp((Ipv4Addr::UNSPECIFIED, address.port()).into(), workers)
                }
                answer => answer,
            };
            listening.map_err(|error| failed(&address.to_string(), error))
        }
        ListenAddress::Unix(path) => {
            unix(path, workers).map_err(|error| failed(&path.to_string_lossy(), error))
        }
    }
}

/// Returns `true` if the kernel has no IPv6 support or IPv6 is disabled.
fn has_no_ipv6(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

fn failed(address: &str, error: io::Error) -> ServeError {
    ServeError::Listen { address: address.to_owned(), error }
}

/// Binds the first socket without `SO_REUSEPORT`. The bind therefore fails if another process uses the address, even
/// one with `SO_REUSEPORT`. Then the option is set, so that the sockets of the other workers can share the address.
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
    Ok(Listening { address: ListenAddress::Tcp(address), sockets, is_shared: false, name: None })
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    set_socket_reuseaddr(&socket, true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // Accept IPv4 connections as well, regardless of net.ipv6.bindv6only.
        set_ipv6_v6only(&socket, false)?;
    }
    // Answers are assembled before they are sent, so Nagle's algorithm only adds delay. Accepted sockets inherit the
    // option.
    set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// Listens on a Unix socket. If a terminated server has left its socket file behind, that file is replaced.
fn unix(path: &Path, workers: usize) -> io::Result<Listening> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_deserted(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        answer => answer?,
    };
    listener.set_nonblocking(true)?;
    let (address, name) = (ListenAddress::Unix(path.to_owned()), Some(path.to_owned()));
    let sockets = copies(OwnedFd::from(listener), workers)?;
    Ok(Listening { address, sockets, is_shared: true, name })
}

fn copies(socket: OwnedFd, workers: usize) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    while sockets.len() + 1 < workers {
        sockets.push(socket.try_clone()?);
    }
    sockets.push(socket);
    Ok(sockets)
}

/// Takes over a listening socket that another process has created.
fn handed(socket: OwnedFd, workers: usize) -> Result<Listening, ServeError> {
    let failed = |error| failed("an inherited socket", error);
    if !socket_acceptconn(&socket).is_ok_and(|listens| listens) {
        return Err(failed(io::Error::other("the socket is not listening")));
    }
    let address = getsockname(&socket).map_err(|errno| failed(errno.into()))?;
    let address = if let Ok(address) = SocketAddr::try_from(address.clone()) {
        set_tcp_nodelay(&socket, true).map_err(|errno| failed(errno.into()))?;
        ListenAddress::Tcp(address)
    } else {
        let name = SocketAddrUnix::try_from(address).map_err(|errno| failed(errno.into()))?;
        let name = name.path_bytes().unwrap_or_default().to_vec();
        ListenAddress::Unix(PathBuf::from(OsString::from_vec(name)))
    };
    ioctl_fionbio(&socket, true).map_err(|errno| failed(errno.into()))?;
    let sockets = copies(socket, workers).map_err(failed)?;
    Ok(Listening { address, sockets, is_shared: true, name: None })
}

fn is_deserted(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn every_address_is_those_of_ipv4_too() {
        let listening = at(&ListenAddress::Tcp((Ipv6Addr::UNSPECIFIED, 0).into()), 2).unwrap();
        let ListenAddress::Tcp(address) = listening.address else { panic!("an internet address") };
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).unwrap();
        if address.is_ipv6() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).unwrap();
        }
    }

    #[test]
    fn an_address_that_is_taken_is_not_shared() {
        let any = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let ours = listen_at(std::slice::from_ref(&any), Vec::new(), 3).unwrap().remove(0);
        assert_eq!(ours.sockets.len(), 3);
        assert!(matches!(at(&ours.address, 2), Err(ServeError::Listen { .. })));
        let ListenAddress::Tcp(address) = ours.address else { panic!() };
        drop(ours.sockets);
        assert_eq!(tcp(address, 2).unwrap().address, ListenAddress::Tcp(address));
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
