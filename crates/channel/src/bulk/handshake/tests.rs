//! A peer that ends in the middle of the handshake.

use super::*;
use crate::bulk::{Receiver, Sender};

fn party(link: Link, role: Role) -> Party {
    let limits = WaitLimits { deadline: None, stop: None };
    Party { link, role, introduction: Some(Introduction::default()), limits }
}

fn geometry() -> Geometry {
    let (epoch, process) = (new_epoch().unwrap(), std::process::id());
    Geometry { header: Geometry::header_len(), capacity: 0, checksums: false, epoch, process }
}

/// The peer's last message is already in our queue, so only our reply to it detects that the peer is gone.
#[test]
fn a_sender_that_offers_and_goes_is_dead() {
    let (near, far) = Link::pair().unwrap();
    drop(party(far, Role::Sender).offer(geometry()).unwrap());
    let error = Receiver::over(near, &Options::default()).err();
    assert_eq!(error, Some(Error::PeerDied { delivered: 0, partial: 0 }));
}

#[test]
fn a_receiver_that_accepts_and_goes_is_dead() {
    let (near, far) = Link::pair().unwrap();
    let peer = std::thread::spawn(move || {
        drop(party(far, Role::Receiver).ask().unwrap().accept().unwrap());
    });
    let error = Sender::over(near, Options::default()).err();
    peer.join().unwrap();
    assert_eq!(error, Some(Error::PeerDied { delivered: 0, partial: 0 }));
}
