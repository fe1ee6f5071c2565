//! Further connections of `thalweg fetch --stdio`. Each of them starts a process of its own on this machine. That process
//! passes its standard input and output to the process of the first connection, which alone changes the destination.

use rustix::process::geteuid;
use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::Arc,
    thread,
};
use thalweg_core::cadence::HANG;
use thalweg_serve::{ByteStream, client::Channels};
use thalweg_sys::{
    Errno,
    io::wait_readable,
    peer::{self, ReceivedDatagram},
    signal,
};

use crate::{
    commands::serve::stdio::stream,
    exit::{CommandFailure, Exit},
    output::text::complain,
    remote::further::request,
};

/// Returns channels over the first connection, and over those that arrive later with this key.
pub fn accept(key: &str, first: ByteStream, from: &str, compress: bool) -> Arc<Channels> {
    let listener = match address(key).and_then(|address| UnixListener::bind_addr(&address)) {
        Ok(listener) => listener,
        Err(error) => {
            complain(&format!("cannot accept further connections: {error}; continuing with one"));
            return Channels::over(first, from);
        }
    };
    let key = key.to_owned();
    let channels = Channels::over_several(first, from, Box::new(move || request(&key)));
    let pool = Arc::clone(&channels);
    let work = move || {
        let _ = signal::leave_interrupts_to_others();
        // `accept` fails if the process has too many descriptors. The existing connections continue.
        while let Ok((socket, _)) = listener.accept() {
            if let Some(stream) = receive(&socket, compress) {
                pool.add(stream, socket.into());
            }
        }
    };
    // Without the thread, requested connections never arrive, and the first one continues.
    let _ = thread::Builder::new().name("accept".to_owned()).spawn(work);
    channels
}

/// Runs `thalweg fetch --stdio --join KEY`: passes standard input and output to the process that accepts this key, and
/// keeps them open until that process closes them.
pub fn join(key: &str) -> Result<Exit, CommandFailure> {
    let (stream, _restored) = stream(false)?;
    let failed = |why: &str| {
        CommandFailure::new(Exit::Failed, format!("cannot join the first connection: {why}"))
    };
    let socket = address(key).and_then(|address| UnixStream::connect_addr(&address));
    let socket = socket.map_err(|error| failed(&error.to_string()))?;
    if !is_of_this_user(&socket) {
        return Err(failed("its process belongs to another user"));
    }
    // If the other process has ended in the meantime, so has the copy.
    let _ = peer::send(&socket, b"+", &[stream.input(), stream.output()]);
    while wait_readable(&socket, None) == Err(Errno::INTR) {}
    Ok(Exit::Done)
}

/// Returns the abstract address of the process that accepts the key. Such an address has no file, and other users can
/// bind and connect to it, so both sides check the user.
fn address(key: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("thalweg-fetch-{key}"))
}

/// Receives the stream of a process of this user.
fn receive(socket: &UnixStream, compress: bool) -> Option<ByteStream> {
    if !is_of_this_user(socket) || wait_readable(socket, Some(HANG)) != Ok(true) {
        return None;
    }
    let ReceivedDatagram { fds, .. } = peer::receive(socket, &mut [0; 1]).ok()?;
    let [input, output] = <[_; 2]>::try_from(fds).ok()?;
    let stream = ByteStream::passed(input, output);
    if compress { stream.compress().ok() } else { Some(stream) }
}

fn is_of_this_user(socket: &UnixStream) -> bool {
    peer::credentials(socket).is_ok_and(|peer| peer.uid == geteuid().as_raw())
}
