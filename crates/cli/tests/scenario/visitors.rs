//! `thalweg receive` while processes connect that are not senders.

use std::os::fd::AsFd;
use thalweg_channel::layout::{Hello, HelloKind, Introduction, Refusal};

use crate::{
    handovers::{LEN, Place},
    support::{Running, bytes},
};

#[test]
fn bad_visitors_are_refused_and_forgotten() {
    let place = Place::new(LEN);
    let receiving = Running::start(&mut place.receive(&["--wait=10m"]));
    let hello = |kind, introduction| Hello { kind, epoch: 7, introduction }.to_bytes();
    let bulk = Some(Introduction { shares: true, token: 5, ..Introduction::default() });
    let words = [
        vec![1],
        b"GET / HTTP/1.1".to_vec(),
        vec![0; Hello::LEN],
        hello(HelloKind::Offer, None).to_vec(),
        hello(HelloKind::Ask, bulk).to_vec(),
        hello(HelloKind::Offer, bulk).to_vec(),
        hello(HelloKind::Ready, bulk).to_vec(),
        hello(HelloKind::Refuse(Refusal::Taken), bulk).to_vec(),
    ];
    let mut stay = Vec::new();
    for word in &words {
        for stays in [true, false] {
            let link = place.connect();
            link.send(word, &[]).unwrap();
            stay.extend(stays.then_some(link));
        }
    }
    // Passes an ordinary file instead of the sealed memfd that the protocol requires.
    let unsealed = place.connect();
    let file = tempfile::tempfile().unwrap();
    unsealed.send(&words[5], &[file.as_fd()]).unwrap();
    Running::start(&mut place.send(&[])).finish().expect(0);
    let received = receiving.finish().expect(0);
    // On a busy machine, the real sender may be too slow at first.
    let refused = received.stderr.matches("waiting for another sender").count();
    assert!(refused >= 17, "{}", received.stderr);
    bytes::expect(&place.copy, 1, LEN);
    place.expect_only(&["copy"]);
}
