//! `tw_listener` and `tw_link`, which connect two processes and pass descriptors between them.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use thalweg_channel::{Address, Admit, Link, Listener};
use thalweg_sys::Errno;

use crate::error::{CallFailure, TwStatus};
use crate::handle::{self, Handle};
use crate::{guard::exported, options, text};

/// `tw_listener`, opaque to C.
pub type TwListener = Handle<Listener>;

/// `tw_link`, opaque to C.
pub type TwLink = Handle<Link>;

/// `tw_peer`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TwPeer {
    pid: u32,
    uid: u32,
    gid: u32,
    is_alive: i32,
}

/// Converts `TW_SAME_USER`, `TW_ANYONE`, or a user id, which is any non-negative number.
fn admit(who: i64) -> Result<Admit, CallFailure> {
    match who {
        -1 => Ok(Admit::SameUser),
        -2 => Ok(Admit::Anyone),
        user => u32::try_from(user).map(Admit::User).map_err(|_| {
            CallFailure::usage(format!(
                "admit is {user}; it must be a user id, TW_SAME_USER or TW_ANYONE"
            ))
        }),
    }
}

/// # Safety
/// `text` must be null or a string that ends with NUL.
unsafe fn address(text: *const c_char) -> Result<Address, CallFailure> {
    // SAFETY: Guaranteed by the caller.
    let path = unsafe { text::path(text, "address") }?;
    match path.to_str() {
        Some(text) => Ok(Address::parse(text)?),
        None => Ok(Address::at(path)),
    }
}

exported! {
    /// Listens at an address.
    fn tw_listener_bind(at: *const c_char, who: i64, listener: *mut *mut TwListener) {
        handle::create(listener, "listener", || {
            let address = address(at)?;
            Ok(Listener::bind_with(&address, admit(who)?)?)
        })
    }

    /// Waits for the next process that connects.
    fn tw_listener_accept(listener: *mut TwListener, timeout_ns: i64, link: *mut *mut TwLink) {
        handle::create(link, "link", || {
            let accept =
                |listener: &mut Listener| Ok(listener.accept_until(options::deadline(timeout_ns))?);
            handle::with(listener, "listener", accept)
        })
    }

    /// Returns the descriptor to poll for waiting processes; -1 for null.
    fn tw_listener_fd(listener: *const TwListener) -> c_int {
        descriptor(listener)
    }
}

/// # Safety
/// The requirements of [`handle::with`] apply.
pub(crate) unsafe fn descriptor<T: AsFd>(end: *const Handle<T>) -> c_int {
    // SAFETY: Guaranteed by the caller.
    let fd = unsafe { handle::with(end, "", |end| Ok(end.as_fd().as_raw_fd())) };
    fd.unwrap_or(-1)
}

exported! {
    /// Closes a listener.
    fn tw_listener_close(listener: *mut TwListener) -> () {
        handle::close(listener);
    }

    /// Connects to the process that listens at an address.
    fn tw_link_connect(to: *const c_char, who: i64, timeout_ns: i64, link: *mut *mut TwLink) {
        handle::create(link, "link", || {
            let address = address(to)?;
            let joined = Link::connect_with(&address, admit(who)?, options::deadline(timeout_ns))?;
            Ok(joined)
        })
    }

    /// Creates two connected ends in this process.
    fn tw_link_pair(near: *mut *mut TwLink, far: *mut *mut TwLink) {
        let near = handle::place(near, "near end");
        let far = handle::place(far, "far end");
        let (near, far) = (near?, far?);
        let ends = Link::pair().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            CallFailure::system("socketpair", errno)
        })?;
        (*near, *far) = (handle::hand_out(ends.0), handle::hand_out(ends.1));
        Ok(())
    }

    /// Creates a link over the caller's socket.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements; the descriptor must stay open during the call.
    fn tw_link_of_fd(socket: c_int, who: i64, link: *mut *mut TwLink) {
        handle::create(link, "link", || {
            let own = text::own_descriptor(socket, "socket")?;
            Ok(Link::over(own, admit(who)?)?)
        })
    }

    /// Reports the process at the other end.
    fn tw_link_peer(link: *mut TwLink, peer: *mut TwPeer) {
        let nobody = TwPeer { pid: 0, uid: u32::MAX, gid: u32::MAX, is_alive: 0 };
        let peer = handle::result(peer, "peer", nobody)?;
        let ask = |link: &mut Link| {
            let (told, is_alive) = (link.peer(), link.peer_is_alive());
            Ok(TwPeer { pid: told.pid, uid: told.uid, gid: told.gid, is_alive: is_alive.into() })
        };
        *peer = handle::with(link, "link", ask)?;
        Ok(())
    }

    /// Sends a message with descriptors.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements; the descriptors must stay open during the call.
    fn tw_link_send(
        link: *mut TwLink,
        message: *const c_void,
        length: usize,
        fds: *const c_int,
        count: usize,
        timeout_ns: i64,
    ) {
        let message = handle::bytes(message, length, "message")?;
        if message.is_empty() || count > Link::MOST_FDS {
            let most = Link::MOST_FDS;
            let message = format!("a message has at least 1 byte and at most {most} descriptors");
            return Err(CallFailure::usage(message));
        }
        let fds: &[c_int] = match count {
            0 => &[],
            _ if fds.is_null() => return Err(handle::is_null("descriptors")),
            // Not null; the caller guarantees that it has `count` elements.
            _ => std::slice::from_raw_parts(fds, count),
        };
        let lend = |fd: &c_int| text::descriptor(*fd, "descriptor");
        let fds = fds.iter().map(lend).collect::<Result<Vec<BorrowedFd<'_>>, CallFailure>>()?;
        let send =
            |link: &mut Link| Ok(link.send_until(message, &fds, options::deadline(timeout_ns))?);
        handle::with(link, "link", send)
    }

    /// Receives a message, with its descriptors.
    #[allow(clippy::too_many_arguments, reason = "as recvmsg, without its struct")]
    fn tw_link_receive(
        link: *mut TwLink,
        into: *mut c_void,
        room: usize,
        length: *mut usize,
        fds: *mut c_int,
        count: *mut usize,
        timeout_ns: i64,
    ) {
        let length = handle::result(length, "length", 0);
        // Null or valid, as the caller guarantees.
        let mut count = count.as_mut();
        let places = count.as_deref_mut().map_or(0, std::mem::take);
        let length = length?;
        let into = handle::room(into, room, "into")?;
        if places > 0 && fds.is_null() {
            return Err(handle::is_null("room for descriptors"));
        }
        let receive =
            |link: &mut Link| Ok(link.receive_until(into, options::deadline(timeout_ns))?);
        let (len, came) = handle::with(link, "link", receive)?;
        if came.len() > places {
            let message = format!(
                "a message with {} descriptors was lost: the caller has room for only {places}",
                came.len()
            );
            return Err(CallFailure::new(TwStatus::Corrupt, message));
        }
        *length = len;
        if let Some(count) = count {
            *count = came.len();
        }
        for (at, fd) in came.into_iter().enumerate() {
            // `at` is below `places`, and the caller guarantees that `fds` has that many elements.
            let to = fds.add(at);
            to.write(fd.into_raw_fd());
        }
        Ok(())
    }

    /// Returns the descriptor to poll for a message; -1 for null.
    fn tw_link_fd(link: *const TwLink) -> c_int {
        descriptor(link)
    }

    /// Closes a link.
    fn tw_link_close(link: *mut TwLink) -> () {
        handle::close(link);
    }
}

#[cfg(test)]
pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_peer", size_of::<TwPeer>()),
        ("tw_peer.is_alive", std::mem::offset_of!(TwPeer, is_alive)),
    ]
}
