//! The helper `receiver`: the reading side of a pipe or socket. It reads all bytes into one buffer and reports the
//! cost; on request it compares every byte with the expected one.
//!
//! The command line is `receiver pipe PATH BUFFER`, `receiver unix BUFFER` or `receiver tcp BUFFER`. Requests follow,
//! one per line. The helper answers `go` when it starts to read, and a result when all bytes have arrived. The result
//! of `take BYTES` is the cost. The result of `look BYTES CONTENT AT` is `same`, or the position of a byte that differs
//! from the content at `AT`.

use rustix::{
    fs::{Mode, OFlags, open},
    net::sockopt::socket_peercred,
    process::getppid,
    rand::{GetRandomFlags, getrandom},
};
use std::{
    net::{Ipv4Addr, TcpListener},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};
use thalweg_measure::arms::content::ByteContent;
use thalweg_measure::arms::transfer::{looked_at, take};
use thalweg_measure::line::{Ledger, hear, number, say};

/// Runs until stdin is closed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (from, buffer) = match words[..] {
        ["pipe", path, buffer] => (pipe(path)?, buffer),
        ["unix", buffer] => (unix()?, buffer),
        ["tcp", buffer] => (tcp()?, buffer),
        _ => {
            return Err(format!(
                "arguments {arguments:?}: expected pipe PATH, unix or tcp, and then BUFFER"
            ));
        }
    };
    let len: usize = buffer.parse().map_err(|_| format!("buffer {buffer:?} is not a number"))?;
    // Touches the memory here, so that no sample includes its page faults.
    let mut buffer = vec![1; len.max(1)];
    say("ready")?;
    while let Some(words) = hear()? {
        let bytes = number(&words, 1)?;
        match words[0].as_str() {
            "take" => {
                say("go")?;
                let ledger = Ledger::open();
                take(&from, &mut buffer, bytes, |_, _| {})?;
                say(&ledger.close())?;
            }
            "look" => {
                let content = ByteContent::named(words.get(2).map_or("", String::as_str))?;
                let at = number(&words, 3)?;
                say("go")?;
                let wrong = looked_at(&from, &mut buffer, content, at, bytes)?;
                say(&wrong.map_or("same".to_owned(), |place| format!("wrong {place}")))?;
            }
            other => return Err(format!("unknown command {other:?}: expected take or look")),
        }
    }
    Ok(())
}

/// Opens the reading end of a FIFO. The parent process already has the other end open.
fn pipe(path: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|e| format!("{path}: {e}"))
}

/// Listens on loopback and reports the address. Reads the address of the sender, and accepts no other connection.
fn tcp() -> Result<OwnedFd, String> {
    let failed = |e: std::io::Error| format!("loopback: {e}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    say(&format!("at {}", listener.local_addr().map_err(failed)?))?;
    let words = hear()?.ok_or("the sender did not send its address")?;
    let expected = words.get(1).map_or("", String::as_str);
    loop {
        let (stream, peer) = listener.accept().map_err(failed)?;
        if peer.to_string() == expected {
            return Ok(stream.into());
        }
    }
}

/// Listens in the abstract namespace and reports the name. Only the parent process may connect.
fn unix() -> Result<OwnedFd, String> {
    let failed = |e: std::io::Error| format!("unix socket: {e}");
    let mut dice = [0; 8];
    getrandom(&mut dice, GetRandomFlags::empty()).map_err(|e| format!("getrandom: {e}"))?;
    let name = format!("thalweg-{:016x}", u64::from_ne_bytes(dice));
    let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
    let listener = UnixListener::bind_addr(&address).map_err(failed)?;
    say(&format!("at {name}"))?;
    hear()?.ok_or("the sender did not send its address")?;
    loop {
        let (stream, _) = listener.accept().map_err(failed)?;
        let peer = socket_peercred(&stream).map_err(|e| format!("SO_PEERCRED: {e}"))?;
        if Some(peer.pid) == getppid() {
            return Ok(stream.into());
        }
    }
}
