//! Accepts clients: from the listening sockets to connections registered with epoll.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::atomic::Ordering, time::Duration};

use rustix::{
    event::epoll,
    net::{Shutdown, SocketAddrAny, shutdown},
};
use thalweg_sys::{
    Errno,
    epoll::{EventData, EventFlags},
    net,
};

use super::{ConnectionSlot, LISTENERS, ServeWorker};
use crate::{
    http::status::HttpStatus,
    server::{answer::refuse, connection::ServeConnection, ends::ConnectionEnds},
};

/// Maximum number of connections accepted at a time.
const ACCEPTS: usize = 32;
/// Maximum number of slots examined in the search for a connection to evict.
const MOST_EXAMINED: usize = 1024;
/// A connection is not evicted before it has had this much time for a request.
const RESPITE: Duration = Duration::from_secs(1);

impl ServeWorker {
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let count = self.parts.tools.site.accounts.connections.load(Ordering::Relaxed);
            if count >= self.parts.most && !self.evict() {
                return self.stop_accepting();
            }
            let Some((socket, _)) = self.parts.listeners.get(listener) else { return };
            match net::accept(socket) {
                Ok((socket, client)) => self.admit(socket, client),
                Err(Errno::AGAIN) => return,
                Err(errno) if is_of_one_client(errno) => {}
                // The connection stays in the queue, so a new `accept` would fail too. Stops accepting until a
                // connection ends or the next tick.
                Err(_) => {
                    // Closes the cached files: they may occupy descriptors or memory that `accept` needs.
                    self.parts.tools.store.get_mut().close();
                    return self.stop_accepting();
                }
            }
        }
    }

    /// Creates the connection of an accepted socket, unless its address has reached its limit.
    fn admit(&mut self, socket: OwnedFd, client: Option<SocketAddrAny>) {
        // The profile may have changed before the client connected, and the wake-up event for it may still be pending.
        self.parts.tools.look_at_policy();
        // A socket on `::` reports IPv4 clients with IPv4-mapped IPv6 addresses.
        let client = client.and_then(|client| SocketAddr::try_from(client).ok());
        let client =
            client.map(|client| SocketAddr::new(client.ip().to_canonical(), client.port()));
        let addresses = &self.parts.tools.site.addresses;
        if client.is_none_or(|client| addresses.enter(client.ip())) {
            self.welcome_client(socket, client);
        } else {
            self.turn_away(&socket);
        }
    }

    /// Makes room: examines some slots and closes the connection with the longest time without a complete request.
    fn evict(&mut self) -> bool {
        let mut oldest: Option<(usize, Duration)> = None;
        for _ in 0..self.slots.len().min(MOST_EXAMINED) {
            self.hand = (self.hand + 1) % self.slots.len();
            let connection = self.slots[self.hand].connection.as_ref();
            let waited = connection.and_then(ServeConnection::without_request);
            if let Some(waited) = waited.filter(|waited| *waited >= RESPITE)
                && oldest.is_none_or(|(_, longest)| longest < waited)
            {
                oldest = Some((self.hand, waited));
            }
        }
        let Some((index, _)) = oldest else { return false };
        self.close(index);
        self.parts.tools.site.accounts.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Refuses a connection from an address that has reached its limit.
    fn turn_away(&self, socket: &OwnedFd) {
        self.parts.tools.site.accounts.turned_away.fetch_add(1, Ordering::Relaxed);
        let answer = refuse(HttpStatus::UNAVAILABLE);
        // Ignores errors: the client may have disconnected, or the kernel may have reset the connection.
        let _ = net::send(socket, &answer.head);
        let _ = shutdown(socket, Shutdown::Write);
    }

    fn welcome_client(&mut self, socket: OwnedFd, client: Option<SocketAddr>) {
        let count = self.parts.tools.site.accounts.connections.load(Ordering::Relaxed);
        if client.is_some()
            && let Some(most) = self.parts.unsent.and_then(|unsent| unsent.of(count + 1))
        {
            // This fails if the kernel does not support the limit. The connection then has no limit.
            let _ = net::limit_unsent(&socket, most);
        }
        let limit = self.parts.tools.site.limit_each;
        let ends = ConnectionEnds::of_socket(socket, client.is_some());
        self.welcome(ServeConnection::new(ends, client, limit));
    }

    pub(super) fn welcome(&mut self, mut connection: ServeConnection) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot { connection: None, turn: 0, is_queued: false });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let token = u64::from(slot.turn) << 32 | u64::from(index);
        // Edge-triggered: each change is reported once, and the registration never has to be modified.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let mut watched = Ok(());
        let mut is_file = false;
        for fd in connection.descriptors() {
            watched = match epoll::add(&self.epoll, fd, EventData::new_u64(token), flags) {
                // epoll refuses a regular file with `EPERM`: such a file is always ready.
                Err(Errno::PERM) => {
                    is_file = true;
                    Ok(())
                }
                added => watched.and(added),
            };
        }
        if is_file {
            connection.ready(EventFlags::IN | EventFlags::RDHUP);
        }
        if watched.is_err() {
            self.free.push(index);
            if let Some(client) = connection.client() {
                self.parts.tools.site.addresses.leave(client);
            }
            return;
        }
        let accounts = &self.parts.tools.site.accounts;
        accounts.accepted.fetch_add(1, Ordering::Relaxed);
        accounts.connections.fetch_add(1, Ordering::Relaxed);
        slot.connection = Some(connection);
        self.advance(token);
    }

    pub(super) fn stop_accepting(&mut self) {
        if self.accepts {
            for (listener, _) in &self.parts.listeners {
                let _ = epoll::delete(&self.epoll, listener);
            }
            self.accepts = false;
        }
    }

    pub(super) fn accept_again(&mut self) -> Result<(), Errno> {
        for (number, (listener, is_shared)) in self.parts.listeners.iter().enumerate() {
            let alone = if *is_shared { EventFlags::EXCLUSIVE } else { EventFlags::empty() };
            let data = EventData::new_u64(LISTENERS + number as u64);
            match epoll::add(&self.epoll, listener, data, EventFlags::IN | alone) {
                // An earlier attempt has already registered this socket.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.accepts = true;
        Ok(())
    }
}

/// Returns `true` if `accept` failed because of a signal, or of one connection, which has left the queue (accept(2)).
/// The next connection can then be accepted immediately.
fn is_of_one_client(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
    )
}
