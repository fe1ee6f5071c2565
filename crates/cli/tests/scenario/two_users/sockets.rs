//! `receive --from D/sock` after another user has made an entry of this name, and connections of other users to it and
//! to a copy over several connections.

use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use std::{
    fs::{self, File},
    io::Read,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::{
            fs::{FileTypeExt, MetadataExt, symlink},
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::Path,
    thread,
    time::Duration,
};

use super::{
    arena::Arena,
    attacker::as_attacker,
    check::{compare, outside},
    victim::{fifo, plant},
};
use crate::{
    remote_connections::make_source,
    support::{Running, Scratch, run::GUARD, shell, skip::is_root, sshd::OtherMachine},
    sync_trees::record,
};
use thalweg_sys::peer;
use thalweg_testing::script;

/// Makes an entry at the path of the socket. The second path is the directory `canary`.
type LaySocket = fn(&Path, &Path);

const RECEIVE: &str = "$T send --to $D/sock --wait 100s $OWN/public & \
    $T receive --from $D/sock --wait 100s $OWN/received; s=$?; kill $! 2>/dev/null; wait; exit $s";

#[test]
fn a_lock_of_another_user_on_the_directory_does_not_keep_receive_from_listening() {
    let test = "a_lock_of_another_user_on_the_directory_does_not_keep_receive_from_listening";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let held = as_attacker(|| {
        let held = File::open(arena.d()).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        held
    });
    arena.run(RECEIVE).expect(0);
    let mut wrong = Vec::new();
    compare(&arena.own("public"), &arena.own("received"), 0o777, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(fs::read_dir(arena.d()).unwrap().count(), 0, "the socket file is gone");
    drop(held);
}

#[test]
fn receive_leaves_whatever_another_user_has_put_at_the_name_of_its_socket() {
    let test = "receive_leaves_whatever_another_user_has_put_at_the_name_of_its_socket";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let lay: [(&str, LaySocket); 5] = [
        // A socket at which no process listens.
        ("stale socket", |name, _| drop(UnixListener::bind(name).unwrap())),
        ("file", |name, _| drop(plant(name, "mine", 0o666))),
        ("FIFO", |name, _| fifo(name)),
        ("symbolic link to a file of root", |name, canary| {
            symlink(canary.join("config"), name).unwrap();
        }),
        ("symbolic link to nothing", |name, canary| symlink(canary.join("new"), name).unwrap()),
    ];
    for (what, lay) in lay {
        arena.reset();
        let (name, canary) = (arena.d().join("sock"), arena.canary());
        as_attacker(|| lay(&name, &canary));
        let (before, inode) = (outside(&arena), fs::symlink_metadata(&name).unwrap().ino());
        let ran = arena.run("$T receive --from $D/sock --wait 100s $OWN/received");
        assert_eq!(ran.status.code(), Some(4), "{what}: {}", ran.said());
        assert!(ran.stderr.contains("belongs to user 54321"), "{what}: {}", ran.stderr);
        assert_eq!(fs::symlink_metadata(&name).unwrap().ino(), inode, "{what}");
        assert_eq!(fs::read_dir(arena.d()).unwrap().count(), 1, "{what}");
        assert_eq!(outside(&arena), before, "{what}");
    }
}

#[test]
fn another_user_cannot_connect_to_the_socket_of_receive() {
    let test = "another_user_cannot_connect_to_the_socket_of_receive";
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let mut receiving = arena.start("exec $T receive --from $D/sock --wait 100s $OWN/received");
    let name = arena.d().join("sock");
    while !name.exists() {
        assert!(!receiving.has_ended(), "ended before it listened");
        thread::sleep(Duration::from_millis(1));
    }
    let meta = fs::symlink_metadata(&name).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o600));
    let refused = as_attacker(|| UnixStream::connect(&name)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(as_attacker(|| fs::remove_file(&name)).is_err());
    receiving.signal(Signal::TERM);
    drop(receiving.finish());
}

#[test]
fn another_user_neither_joins_a_copy_nor_takes_its_further_connections() {
    let test = "another_user_neither_joins_a_copy_nor_takes_its_further_connections";
    if !is_root(test) {
        return;
    }
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let (log, rsh) = (scratch.join("log"), scratch.join("logged"));
    let (log_name, inner) = (log.display(), machine.rsh.display());
    script(&rsh, &format!("#!/bin/sh\necho \"$*\" >>'{log_name}'\nexec '{inner}' \"$@\"\n"));
    let machine = machine.through(rsh);
    let (source, dst) = (make_source(&scratch), scratch.join("dst"));
    let words = ["--connections=2", "--jobs=4", "--limit=8M"];
    let mut running = Running::start(&mut machine.between(("sync", &words), true, [&source, &dst]));
    let key = loop {
        let logged = fs::read_to_string(&log).unwrap_or_default();
        if let Some((_, rest)) = logged.split_once("--join ") {
            break rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        assert!(!running.has_ended(), "no further connection: {logged}");
        thread::sleep(Duration::from_millis(1));
    };
    // The copy cannot end before the attacker has connected.
    running.signal(Signal::STOP);
    let address =
        |key: &str| SocketAddr::from_abstract_name(format!("thalweg-fetch-{key}")).unwrap();
    as_attacker(|| {
        let mut socket = UnixStream::connect_addr(&address(&key)).unwrap();
        let zeros = File::open("/dev/zero").unwrap();
        let _ = peer::send(&socket, b"+", &[zeros.as_fd(), zeros.as_fd()]);
        socket.set_read_timeout(Some(GUARD)).unwrap();
        assert!(!matches!(socket.read(&mut [0]), Ok(1..)), "an answer");
    });
    running.signal(Signal::CONT);
    running.finish().expect(0);
    assert!(record(&dst) == record(&source));

    let taken = as_attacker(|| UnixListener::bind_addr(&address("taken")).unwrap());
    let joined =
        shell(scratch.path(), "$T fetch --stdio --join taken </dev/null >/dev/null").expect(1);
    joined.expect_said("its process belongs to another user");
    drop(taken);
}
