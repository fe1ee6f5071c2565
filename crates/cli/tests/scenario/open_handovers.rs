//! `thalweg send` passes an open descriptor, and `thalweg receive` copies the file. Both report the method and any
//! failure.

use std::{fs, os::fd::BorrowedFd, time::Duration};
use thalweg_channel::{
    Address, Error, Listener,
    bulk::{Announced, MECHANISMS, NotMoved, Options, Receiver, Sink},
};
use thalweg_core::Watch;

use super::handovers::{LEN, Place, both};
use crate::support::{Running, bytes, names};

fn is_between_processes(name: &str) -> bool {
    MECHANISMS.iter().any(|mechanism| mechanism.info().name == name)
}

#[test]
fn a_file_is_copied_by_the_receiver_and_both_say_how() {
    let place = Place::new(LEN);
    let (received, sent) = both(&mut place.receive(&["--json"]), &mut place.send(&["--json"]));
    let (received, sent) = (received.expect(0).json(), sent.expect(0).json());
    for account in [&received, &sent] {
        assert!(!is_between_processes(account["mechanism"].as_str().unwrap()), "{account}");
        assert_eq!((&account["mechanism"], &account["bytes"]), (&sent["mechanism"], &LEN.into()));
        assert_eq!(account["verified"]["asked"], false, "no checksum was compared");
    }
    bytes::expect(&place.copy, 1, LEN);
    place.expect_only(&["copy"]);
}

#[test]
fn several_files_are_copied_and_an_empty_one_and_a_stream_go_as_bytes() {
    let place = Place::new(LEN).with_folder();
    let files = place.more(&["b", "empty"]);
    fs::write(&files[1], "").unwrap();
    let mut all = vec![place.source.clone()];
    all.extend(files);
    let (received, sent) =
        both(&mut place.receive(&["--json"]), &mut place.send_many(&["--json"], &all));
    for account in [received.expect(0).json(), sent.expect(0).json()] {
        assert_eq!((&account["files"], &account["bytes"]), (&3.into(), &(2 * LEN).into()));
    }
    assert_eq!(names(&place.copy), ["b", "empty", "source"]);
    bytes::expect(&place.copy.join("source"), 1, LEN);
    bytes::expect(&place.copy.join("b"), 2, LEN);
}

/// Either side may refuse descriptors. The sender then sends the bytes, and reports why.
#[test]
fn a_receiver_that_refuses_open_files_gets_the_bytes_and_their_checksum() {
    let place = Place::new(LEN);
    let cases: [(&[&str], &[&str], bool); 3] = [
        (&["--as-bytes"], &[], false),
        (&["--method=ring"], &[], false),
        (&[], &["--no-trust"], true),
    ];
    for (sends, receives, told) in cases {
        let mut receive = place.receive(&[receives, &["--json"]].concat());
        let mut send = place.send(&[sends, &["--json"]].concat());
        let (received, sent) = both(&mut receive, &mut send);
        let (received, sent) = (received.expect(0).json(), sent.expect(0).json());
        assert_eq!(received["verified"]["same"], 1, "{received}");
        for account in [&received, &sent] {
            assert!(is_between_processes(account["mechanism"].as_str().unwrap()), "{account}");
        }
        let says = sent["unavailable"].to_string().contains("open file");
        assert_eq!(says, told, "{sent}");
        bytes::expect(&place.copy, 1, LEN);
    }
}

/// A sink that takes an open descriptor and never finishes.
struct Endless {
    sender: Option<Running>,
    abandoned: u64,
}

impl Sink for Endless {
    fn begin(&mut self, _: &Announced) -> Result<(), String> {
        Ok(())
    }

    fn write(&mut self, _: &[u8]) -> Result<(), String> {
        Err("bytes came".to_owned())
    }

    fn publish(&mut self) -> Result<(), String> {
        Err("it was published".to_owned())
    }

    fn abandon(&mut self) {
        self.abandoned += 1;
    }

    fn takes_open(&self) -> bool {
        true
    }

    fn move_open(
        &mut self,
        _: BorrowedFd<'_>,
        _: u64,
        watch: &mut dyn Watch,
    ) -> Result<String, NotMoved> {
        self.sender.take().unwrap().child().kill().unwrap();
        while watch.progress(1).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(NotMoved::Stopped)
    }
}

#[test]
fn a_sender_killed_while_its_file_is_copied_is_noticed_and_nothing_is_published() {
    let place = Place::new(LEN);
    let listener = Listener::bind(&Address::at(&place.socket)).unwrap();
    let sender = Running::start(&mut place.send(&[]));
    let link = listener.accept_until(None).unwrap();
    let mut receiver = Receiver::over(link, &Options::default()).unwrap();
    let mut sink = Endless { sender: Some(sender), abandoned: 0 };
    let died = receiver.recv_all(&mut sink, &mut |_, _| {}).unwrap_err();
    assert!(matches!(died, Error::PeerDied { .. }), "{died}");
    assert_eq!(sink.abandoned, 1);
}
