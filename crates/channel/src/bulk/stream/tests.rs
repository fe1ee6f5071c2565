//! A peer that tampers with the pipe or socket that it has passed.

use super::*;
use crate::bulk::control_message::LONGEST;
use crate::bulk::mechanism::PeerToken;
use crate::bulk::mechanisms::MECHANISMS;
use crate::link::Link;
use crate::shared::line::LinkLine;
use crate::shared::wait::WaitLimits;
use rustix::fs::{FileType, fstat};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A call that takes longer than this counts as blocked. It is no requirement of speed.
const GUARD: Duration = Duration::from_secs(60);

/// Returns the facts for which every mechanism that needs shared memory or trust refuses.
fn strangers() -> TransferEnds {
    static TOKEN: PeerToken = PeerToken::new(0);
    let refused = || Err(Unfit::because("refused by the test"));
    let pid = std::process::id() as i32;
    TransferEnds { trusted: refused(), shares: refused(), pid, token: (0, 0), own_token: &TOKEN }
}

/// Receives a buffer of which no byte arrives, until a deadline. Returns `None` if the call blocks.
fn outcome_of(mut incoming: Box<dyn Incoming>) -> Option<FillResult> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (near, _far) = Link::pair().unwrap();
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let limits = WaitLimits { deadline, stop: None };
        let mut control = BulkControl::over(LinkLine::new(near, LONGEST), limits);
        let begin = Note::new(Say::Begin, &[100]);
        let _ = tell.send(incoming.receive(begin, &mut [0; 100], &mut control));
    });
    told.recv_timeout(GUARD).ok()
}

#[test]
fn a_receiver_meets_its_deadline_although_the_peer_makes_the_descriptor_block() {
    let (ends, tuning, mut tested) = (strangers(), Tuning::default(), 0);
    for mechanism in MECHANISMS.iter().filter(|mechanism| mechanism.probe().is_ok()) {
        let Ok((_outgoing, parcel)) = mechanism.offer(&tuning, &ends) else { continue };
        let [passed] = &parcel.fds[..] else { continue };
        let kind = FileType::from_raw_mode(fstat(passed).unwrap().st_mode);
        if !matches!(kind, FileType::Fifo | FileType::Socket) {
            continue;
        }
        let duplicate = passed.try_clone().unwrap();
        let (incoming, _) = mechanism.accept(&tuning, parcel, &ends).unwrap();
        rustix::io::ioctl_fionbio(&duplicate, false).unwrap();
        if kind == FileType::Socket {
            set_socket_timeout(&duplicate, Timeout::Recv, None).unwrap();
        }
        let name = mechanism.info().name;
        match outcome_of(incoming) {
            Some(Err(Broken { delivered: 0, stop: WaitStop::Late })) => tested += 1,
            Some(other) => panic!("{name}: {other:?}"),
            None => panic!("{name}: the receiver blocks after its deadline"),
        }
    }
    assert!(tested >= 3, "only {tested} mechanisms pass a pipe or a socket");
}
