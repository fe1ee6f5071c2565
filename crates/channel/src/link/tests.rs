#![allow(clippy::unwrap_used, clippy::unnecessary_wraps)]
use super::*;
use std::os::unix::fs::FileTypeExt;

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(20))
}

fn scratch() -> (tempfile::TempDir, Address) {
    let place = tempfile::tempdir().unwrap();
    let address = Address::at(place.path().join("socket"));
    (place, address)
}

#[test]
fn a_pair_carries_messages_and_descriptors() {
    let (near, far) = Link::pair().unwrap();
    let mut buffer = [0; 64];
    assert_eq!(far.receive_until(&mut buffer, soon()).err(), Some(Error::Timeout));
    near.send(b"one", &[near.as_fd(), far.as_fd()]).unwrap();
    near.send(b"two", &[]).unwrap();
    let (len, fds) = far.receive(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], fds.len()), (&b"one"[..], 2));
    assert_eq!(far.receive(&mut buffer).unwrap().0, 3);
    assert!(near.peer_is_alive());
    assert_eq!(near.peer().pid, std::process::id());
}

#[test]
fn a_queue_that_is_full_is_a_timeout_and_nothing_is_lost() {
    let (near, far) = Link::pair().unwrap();
    let mut sent: u32 = 0;
    while near.send_until(&sent.to_le_bytes(), &[], soon()).is_ok() {
        sent += 1;
    }
    let mut buffer = [0; 4];
    for expected in 0..sent {
        far.receive(&mut buffer).unwrap();
        assert_eq!(u32::from_le_bytes(buffer), expected);
    }
}

#[test]
fn a_closed_end_is_seen_after_its_last_message() {
    let (near, far) = Link::pair().unwrap();
    near.send(b"never read", &[]).unwrap();
    far.send(b"last", &[]).unwrap();
    drop(far);
    assert!(!near.peer_is_alive());
    assert_eq!(near.receive(&mut [0; 8]).unwrap().0, 4);
    assert_eq!(near.receive(&mut [0; 8]).err(), Some(Error::Closed { delivered: 0 }));
    assert_eq!(near.send(b"x", &[]).err(), Some(Error::Closed { delivered: 0 }));
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_its_descriptors_closed() {
    let (near, far) = Link::pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    near.send(b"longer than that", &[writer.as_fd()]).unwrap();
    drop(writer);
    let refused = far.receive(&mut [0; 4]).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
    // End of file shows that all descriptors of the writing end are closed, including the one in
    // the refused message.
    assert_eq!(io::read(&reader, &mut [0; 1]), Ok(0));
}

#[test]
fn a_listener_is_found_and_its_file_goes_with_it() {
    let (_place, address) = scratch();
    let nobody = Link::connect(&address).unwrap_err();
    assert_eq!(nobody, Error::at("connect", address.path())(Errno::NOENT));
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(listener.accept_until(soon()).err(), Some(Error::Timeout));
    let near = Link::connect(&address).unwrap();
    let far = listener.accept().unwrap();
    near.send(b"hello", &[]).unwrap();
    assert_eq!(far.receive(&mut [0; 8]).unwrap().0, 5);
    assert_eq!(far.peer().uid, rustix::process::geteuid().as_raw());
    drop(listener);
    assert!(!address.path().exists());
}

#[test]
fn a_name_in_use_is_refused_and_a_stale_one_replaced() {
    let (_place, address) = scratch();
    let listener = Listener::bind(&address).unwrap();
    let taken = Listener::bind(&address).unwrap_err();
    assert_eq!(taken, Error::at("bind", address.path())(Errno::ADDRINUSE));
    // Simulate the state after kill -9: the file remains, and no process listens.
    let mut killed = std::mem::ManuallyDrop::new(listener);
    let gone = std::mem::replace(&mut killed.socket, rustix::pipe::pipe().unwrap().0);
    drop(gone);
    assert!(std::fs::metadata(address.path()).unwrap().file_type().is_socket());
    let second = Listener::bind(&address).unwrap();
    Link::connect(&address).unwrap();
    // The file belongs to the second listener now. Dropping the first listener must not remove it.
    drop(std::mem::ManuallyDrop::into_inner(killed));
    assert!(address.path().exists());
    drop(second);
}

#[test]
fn something_else_with_the_name_is_left_alone() {
    let (_place, address) = scratch();
    std::fs::write(address.path(), "mine").unwrap();
    assert!(Listener::bind(&address).is_err());
    assert_eq!(std::fs::read(address.path()).unwrap(), b"mine");
}

#[test]
fn a_socket_is_for_its_own_user_from_the_start_and_leaves_no_other_name() {
    use std::os::unix::fs::PermissionsExt;
    let (place, address) = scratch();
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(std::fs::metadata(address.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    assert!(Listener::bind(&address).is_err());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    drop(listener);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    // The longest path that fits into a socket address.
    let room = 107 - place.path().as_os_str().len() - 1;
    let longest = Address::at(place.path().join("n".repeat(room)));
    let listener = Listener::bind(&longest).unwrap();
    Link::connect(&longest).unwrap();
    drop(listener);
    let longer = Listener::bind(&Address::at(place.path().join("n".repeat(room + 2))));
    assert!(longer.unwrap_err().to_string().contains("107 bytes"));
}

#[test]
fn a_lock_on_the_directory_does_not_prevent_listening() {
    let (place, address) = scratch();
    let held = std::fs::File::open(place.path()).unwrap();
    held.lock().unwrap();
    let _listener = Listener::bind(&address).unwrap();
    Link::connect(&address).unwrap();
}

#[test]
fn of_many_that_find_a_stale_socket_one_listens_and_is_found() {
    for _ in 0..50 {
        let (place, address) = scratch();
        drop(peer::listen(address.path(), rustix::fs::Mode::RWXU).unwrap());
        let start = std::sync::Barrier::new(4);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let racer = || {
                start.wait();
                Listener::bind(&address)
            };
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(racer)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1, "{bound:?}");
        Link::connect(&address).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}

/// Processes listen, end and die, all at the same name. A killed process is simulated by a socket that closes while its
/// file remains.
#[test]
fn at_most_one_listens_while_others_end_and_die() {
    let (place, address) = scratch();
    let listening = std::sync::atomic::AtomicU32::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for racer in 0..4 {
            let (address, listening) = (&address, &listening);
            scope.spawn(move || {
                for round in 0..200 {
                    let mut listener = match Listener::bind(address) {
                        Ok(listener) => listener,
                        Err(Error::Meeting { errno: Errno::ADDRINUSE, .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    assert_eq!(listening.fetch_add(1, order), 0, "two listen");
                    Link::connect(address).unwrap();
                    listening.fetch_sub(1, order);
                    if (racer + round) % 3 > 0 {
                        listener.socket = rustix::pipe::pipe().unwrap().0;
                        std::mem::forget(listener);
                    }
                }
            });
        }
    });
    drop(Listener::bind(&address).unwrap());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn another_user_is_refused_on_both_sides() {
    let (_place, address) = scratch();
    let other = rustix::process::geteuid().as_raw() + 1;
    let listener = Listener::bind_with(&address, Admit::User(other)).unwrap();
    let near = Link::connect(&address).unwrap();
    let refused = listener.accept().unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
    assert_eq!(near.receive(&mut [0; 1]).err(), Some(Error::Closed { delivered: 0 }));
    let refused = Link::connect_with(&address, Admit::User(other), None).unwrap_err();
    assert!(refused.to_string().contains("only user"), "{refused}");
}

#[test]
fn names_are_plain_and_long_paths_an_error() {
    for bad in ["", ".", "..", "a b", ".hidden", "a\0b", "ö"] {
        assert!(matches!(Address::parse(bad), Err(Error::NotPermitted { .. })), "{bad:?}");
    }
    assert_eq!(Address::parse("/x/y").unwrap(), Address::at("/x/y"));
    let long = Address::at(format!("/tmp/{}", "x".repeat(200)));
    let refused = Link::connect(&long).unwrap_err();
    assert_eq!(refused, Error::at("connect", long.path())(Errno::NAMETOOLONG));
}

#[test]
fn only_a_seqpacket_socket_makes_a_link() {
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(Link::over(stream.into(), Admit::Anyone).is_err());
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert!(Link::over(reader, Admit::Anyone).is_err());
}
