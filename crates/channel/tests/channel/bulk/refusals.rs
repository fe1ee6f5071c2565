//! Refuses system calls, as the filter of a container does. Another mechanism then delivers the
//! bytes, and the reason is recorded.

use proptest::prelude::*;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Instant;
use thalweg_channel::{
    Error, Link,
    bulk::{MECHANISMS, Mechanism, Options, Receiver, Sender, Skipped},
    layout::{Hello, HelloKind, Introduction},
};
use thalweg_core::{Role, Tuning};
use thalweg_sys::{
    Errno,
    fault::{self, Call, Effect, Rule},
};

use super::conformance::working;
use super::peer::{Peer, Script, difference, fill};
use thalweg_testing::skip;

/// System calls that the filter of a container may refuse.
const REFUSED: [(&str, i64); 8] = [
    ("memfd_create", libc::SYS_memfd_create),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("vmsplice", libc::SYS_vmsplice),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("shmget", libc::SYS_shmget),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("futex_waitv", libc::SYS_futex_waitv),
];

/// Runs `body` on a thread in which these calls fail, as in all threads and processes it starts.
fn without<T: Send>(
    calls: &[i64],
    errno: i32,
    body: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let rules: BTreeMap<i64, Vec<_>> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let here = std::env::consts::ARCH.try_into().expect("an architecture seccompiler knows");
    let refuse = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            seccompiler::apply_filter(&filter).map_err(|error| error.to_string())?;
            Ok(body())
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

const LEN: usize = 200_001;

/// Receives from the other process. Returns the mechanism and the skipped ones.
fn receive(link: Link, options: &Options) -> Result<(&'static str, Vec<Skipped>), Error> {
    let mut receiver = Receiver::over(link, options)?;
    let mut memory = vec![0; LEN];
    for seed in 0..2 {
        assert_eq!(receiver.recv_into(&mut memory)?, LEN);
        assert_eq!(difference(seed, &memory), None);
    }
    Ok((receiver.mechanism().name, receiver.skipped().to_vec()))
}

fn script() -> Script {
    Script { sends: true, buffers: vec![(LEN, 1); 2], ..Script::default() }
}

#[test]
fn a_sender_without_the_refused_calls_sends_the_same_bytes() {
    let all: Vec<i64> = REFUSED.iter().map(|call| call.1).collect();
    let ones = REFUSED.iter().map(|call| vec![call.1]);
    for calls in ones.chain([all]) {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let script = script();
            // The filter affects only the other process, which the filtered thread starts.
            let started = match without(&calls, errno, || Peer::start(&script)) {
                Ok(started) => started,
                Err(why) => return skip("refused calls", &format!("no seccomp: {why}")),
            };
            let (peer, link) = started;
            receive(link, &script.options()).unwrap_or_else(|e| panic!("{calls:?}: {e}"));
            peer.finish();
        }
    }
}

#[test]
fn a_receiver_without_the_refused_calls_gets_the_same_bytes_and_says_why() {
    for (name, call) in REFUSED {
        let script = script();
        let outcome = without(&[call], libc::EPERM, || {
            let (peer, link) = Peer::start(&script);
            let got = receive(link, &script.options());
            peer.finish();
            got
        });
        match outcome {
            Err(why) => return skip("refused calls", &format!("no seccomp: {why}")),
            Ok(Err(error)) => panic!("without {name}: {error}"),
            Ok(Ok((_, skipped))) => {
                assert!(skipped.iter().all(|skipped| !skipped.reason.is_empty()), "{skipped:?}");
            }
        }
    }
}

/// If the caller names a mechanism, it is used or refused, but never replaced.
#[test]
fn a_mechanism_asked_for_by_name_is_refused_with_the_reason() {
    for way in working() {
        for (name, call) in REFUSED {
            let script = Script { mechanism: Some(way.info().name.to_owned()), ..script() };
            let outcome = without(&[call], libc::EPERM, || {
                let (near, far) = Link::pair().unwrap();
                std::thread::scope(|scope| {
                    let receiving = scope.spawn(|| receive(far, &script.options()));
                    let sender = Sender::over(near, script.options());
                    let sent = sender.and_then(|mut sender| {
                        let mut memory = vec![0; LEN];
                        for seed in 0..2 {
                            fill(seed, &mut memory);
                            sender.send_from(&memory)?;
                        }
                        Ok(sender.mechanism().name)
                    });
                    (sent, receiving.join().unwrap())
                })
            });
            let (sent, received) = match outcome {
                Ok(both) => both,
                Err(why) => return skip("refused calls", &format!("no seccomp: {why}")),
            };
            match (sent, received) {
                (Ok(used), Ok((also, _))) => {
                    assert_eq!((used, also), (way.info().name, used));
                }
                (Err(Error::NotPermitted { why }), Err(_)) => {
                    assert!(why.contains(way.info().name), "{name}: {why}");
                }
                other => panic!("{} without {name}: {other:?}", way.info().name),
            }
        }
    }
}

/// A system call begins to fail during the transfer. Another mechanism then sends the buffer again
/// from its first byte.
#[test]
fn a_refusal_under_way_is_stepped_over_and_recorded() {
    let chosen = |way: &&dyn Mechanism| way.info().role == Role::Mover;
    let last_resort = working().into_iter().rfind(chosen).unwrap().info();
    let mut stepped = 0;
    for way in working().into_iter().filter(chosen) {
        let info = way.info();
        let calls = Call::ALL.into_iter().filter(|call| info.calls.contains(&call.name()));
        for (call, sender_fails) in calls.flat_map(|call| [(call, true), (call, false)]) {
            if last_resort.calls.contains(&call.name()) {
                continue;
            }
            // Exclude all other mechanisms, so that only two are left. The first of them will fail.
            let others = MECHANISMS.iter().map(|way| way.info().name);
            let others = others.filter(|name| ![info.name, last_resort.name].contains(name));
            let options =
                Options { without: others.map(str::to_owned).collect(), ..Options::default() };
            let inject = |fails: bool| {
                let rules = if fails {
                    vec![Rule { nth: 2, ..Rule::always(call, Effect::Errno(Errno::PERM)) }]
                } else {
                    Vec::new()
                };
                fault::Script::new(rules)
            };
            let (near, far) = Link::pair().unwrap();
            let skipped = std::thread::scope(|scope| {
                let receiving = scope.spawn(|| {
                    let mut end = None;
                    inject(!sender_fails).run(|| end = Some(receive(far, &options)));
                    end.unwrap()
                });
                let mut skipped = Vec::new();
                inject(sender_fails).run(|| {
                    let mut sender = Sender::over(near, options.clone()).expect("a mechanism");
                    let mut memory = vec![0; LEN];
                    for seed in 0..2 {
                        fill(seed, &mut memory);
                        sender.send_from(&memory).unwrap_or_else(|error| {
                            panic!("{} without {}: {error}", info.name, call.name())
                        });
                    }
                    skipped = sender.skipped().to_vec();
                });
                let received = receiving.join().unwrap();
                received.unwrap_or_else(|e| panic!("{} {}: {e}", info.name, call.name()));
                skipped
            });
            if let Some(step) = skipped.iter().find(|skipped| skipped.mechanism == info.name) {
                assert!(!step.reason.is_empty());
                stepped += 1;
            }
        }
    }
    assert!(stepped >= 4, "only {stepped} refusals led to another mechanism");
}

#[test]
fn a_peer_that_is_not_trusted_keeps_its_memory_to_itself() {
    for trust in [(true, false), (false, true), (false, false)] {
        for way in working().into_iter().filter(|way| way.info().nature.wants_trust) {
            let options =
                |trust| Options { trust, ..Options::only(way.info().name, Tuning::default()) };
            let (near, far) = Link::pair().unwrap();
            std::thread::scope(|scope| {
                let receiving = scope.spawn(|| Receiver::over(far, &options(trust.1)).map(drop));
                let sent = Sender::over(near, options(trust.0)).map(drop);
                assert!(matches!(sent, Err(Error::NotPermitted { .. })), "{sent:?}");
                assert!(receiving.join().unwrap().is_err());
            });
        }
    }
}

/// Any process can connect and send anything. That must be a timely error, and never a panic.
#[test]
fn a_peer_that_talks_nonsense_is_an_error() {
    let nonsense: [&[u8]; 4] =
        [b"hello", &[0; 16], b"TWBK\x03\x00\x01\x00\xff\xff\x00\x00", &[7; 9000]];
    for words in nonsense {
        for to_sender in [true, false] {
            let (near, far) = Link::pair().unwrap();
            std::thread::scope(|scope| {
                let end = scope.spawn(|| {
                    if to_sender {
                        Sender::over(near, Options::default()).map(drop)
                    } else {
                        Receiver::over(near, &Options::default()).map(drop)
                    }
                });
                far.send(words, &[]).unwrap();
                let error = end.join().unwrap().unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            });
        }
    }
}

/// Builds a message of the protocol: magic, version, kind, counts, words, at most one knob, text.
fn message(kind: u16, words: &[u64], knob: Option<(&str, u64)>, text: &str) -> Vec<u8> {
    let mut bytes = b"TWBK\x03\x00".to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend((words.len() as u16).to_le_bytes());
    bytes.extend(u16::from(knob.is_some()).to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    if let Some((name, value)) = knob {
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(text.as_bytes());
    bytes
}

const OFFER: u16 = 1;
const ACCEPT: u16 = 2;
const REFUSE: u16 = 3;
const AGREED: u16 = 4;
const NOTE: u16 = 7;
const MEMORY: u16 = 8;
/// First words of two kinds of notes: a buffer begins, and the receiver cannot receive it.
const BEGIN: u64 = 1;
const CANNOT: u64 = 5;

/// Builds a handshake message. `Introduction::default()` is that of a side that shares no memory.
fn hello(kind: HelloKind, introduction: Introduction) -> [u8; Hello::LEN] {
    Hello { kind, epoch: 0, introduction: Some(introduction) }.to_bytes()
}

/// Plays a sender in the whole handshake. It trusts the peer and sends notes over the link.
fn shake_hands(link: &Link) {
    let own = Introduction { trusts: true, token_at: 1, token: 2, ..Introduction::default() };
    link.send(&hello(HelloKind::Offer, own), &[]).unwrap();
    let mut answer = [0; Hello::LEN];
    for expected in [HelloKind::Ask, HelloKind::Accept] {
        link.receive(&mut answer).unwrap();
        assert_eq!(Hello::parse(&answer).unwrap().kind, expected);
    }
    link.send(&hello(HelloKind::Ready, own), &[]).unwrap();
}

/// Memory that its owner can shrink must be refused, because reading it could raise SIGBUS.
#[test]
fn memory_that_can_shrink_is_refused() {
    let fd = match thalweg_sys::memfd::create("test", 4096) {
        Ok(fd) => fd,
        Err(failed) => return skip("memory_that_can_shrink_is_refused", &failed.errno.to_string()),
    };
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let end = scope.spawn(|| Receiver::over(far, &Options::default()).map(drop));
        let shares = Introduction { shares: true, ..Introduction::default() };
        near.send(&hello(HelloKind::Offer, shares), &[fd.as_fd()]).unwrap();
        let error = end.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
    });
}

/// The memory of a buffer must be refused if it can shrink. It must also be refused if it has
/// holes, because their pages would be charged to the reader.
#[test]
fn a_buffer_in_memory_that_can_shrink_or_is_not_there_is_refused() {
    use thalweg_sys::region::{SealFlags, seal};
    let len = 4096;
    let lent = working().into_iter().filter(|way| way.info().nature.wants_loan);
    for (way, has_holes) in lent.flat_map(|way| [(way, false), (way, true)]) {
        let fd = thalweg_sys::memfd::create("test", len).unwrap();
        if has_holes {
            rustix::fs::ftruncate(&fd, 1 << 40).unwrap();
            seal(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).unwrap();
        }
        let (near, far) = Link::pair().unwrap();
        std::thread::scope(|scope| {
            let end = scope.spawn(|| {
                let mut receiver = Receiver::over(far, &Options::default())?;
                receiver.recv_into(&mut vec![0; len as usize])
            });
            let say = |kind, words: &[u64], text, fds: &[_]| {
                near.send(&message(kind, words, None, text), fds).unwrap();
            };
            let mut answer = [0; 16 << 10];
            shake_hands(&near);
            say(OFFER, &[], way.info().name, &[]);
            near.receive(&mut answer).unwrap();
            assert_eq!(answer[6..8], ACCEPT.to_le_bytes(), "{}", way.info().name);
            say(AGREED, &[], "", &[]);
            // Some mechanisms number their memories. Here the number equals the length.
            say(MEMORY, &[len, len], "", &[fd.as_fd()]);
            say(NOTE, &[BEGIN, len, len, 0, 0, 0], "", &[]);
            let error = end.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{}: {error}", way.info().name);
        });
    }
}

/// A receiver must not lock as much memory as any sender requests.
#[test]
fn an_offer_of_very_large_pieces_is_refused() {
    let Some(way) = working().into_iter().find(|way| way.info().name == "io-uring") else {
        return;
    };
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let end = scope.spawn(|| Receiver::over(far, &Options::default()).map(drop));
        shake_hands(&near);
        let mut answer = [0; 16 << 10];
        let (socket, _other) = thalweg_sys::net::unix_pair(false).unwrap();
        for (piece, expected) in [(1 << 30, REFUSE), (256 << 10, ACCEPT)] {
            let offer = message(OFFER, &[], Some(("piece", piece)), way.info().name);
            near.send(&offer, &[socket.as_fd()]).unwrap();
            near.receive(&mut answer).unwrap();
            assert_eq!(answer[6..8], expected.to_le_bytes(), "{piece}");
        }
        drop(near);
        assert!(end.join().unwrap().is_err());
    });
}

/// A sender makes offers without end. The record of refused offers must stay limited.
#[test]
fn offers_without_end_are_an_error() {
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let end = scope.spawn(|| Receiver::over(far, &Options::default()).map(drop));
        shake_hands(&near);
        let mut answer = [0; 16 << 10];
        for n in 0..1000 {
            if near.send(&message(OFFER, &[], None, &format!("pigeon-{n}")), &[]).is_err() {
                break;
            }
            if near.receive(&mut answer).is_err() {
                break;
            }
        }
        drop(near);
        let error = end.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { what } if what.contains("too many methods")),
            "{error}"
        );
    });
}

/// A receiver may send any number instead of an errno.
#[test]
fn a_refusal_with_a_number_that_is_no_errno_is_a_refusal() {
    for number in [0, 4096, 4097, 1 << 32, u64::MAX] {
        let (near, far) = Link::pair().unwrap();
        std::thread::scope(|scope| {
            let end = scope.spawn(|| {
                let mut sender = Sender::over(near, Options::only("pipe", Tuning::default()))?;
                sender.send_from(b"some")
            });
            let mut heard = [0; 16 << 10];
            let mut hear = || far.receive(&mut heard).unwrap();
            let say = |kind, words: &[u64]| far.send(&message(kind, words, None, ""), &[]).unwrap();
            let own = Introduction::default();
            far.send(&hello(HelloKind::Ask, own), &[]).unwrap();
            hear();
            far.send(&hello(HelloKind::Accept, own), &[]).unwrap();
            hear();
            hear();
            say(ACCEPT, &[]);
            hear();
            say(NOTE, &[CANNOT, number, 0, 0, 0, 0]);
            let error = end.join().unwrap().unwrap_err();
            let refused = matches!(&error, Error::NotPermitted { why } if why.contains("refused"));
            assert!(refused, "{number}: {error}");
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Random messages, most of them valid, so that the invalid one comes late. Neither side trusts
    /// the other: the peer is this process, and its claims about its memory would be accepted.
    #[test]
    fn no_conversation_crashes_an_end_or_keeps_it(
        to_sender: bool,
        begins_well: bool,
        said in prop::collection::vec(
            (0_u16..12, prop::collection::vec(prop_oneof![0_u64..8, any::<u64>()], 0..7), 0_usize..14, any::<bool>()),
            0..7,
        ),
    ) {
        let (near, far) = Link::pair().unwrap();
        let fd = thalweg_sys::memfd::create("test", 8192).unwrap();
        if begins_well {
            let own = Introduction { trusts: true, token: 2, ..Introduction::default() };
            let kinds = if to_sender { [HelloKind::Ask, HelloKind::Accept] } else { [HelloKind::Offer, HelloKind::Ready] };
            for kind in kinds {
                far.send(&hello(kind, own), &[]).unwrap();
            }
        }
        for (kind, words, name, hands_over) in said {
            let name = MECHANISMS.get(name).map_or("nonsense", |way| way.info().name);
            let fds: Vec<_> = hands_over.then(|| fd.as_fd()).into_iter().collect();
            // A full queue also ends the test case.
            let _ = far.send_until(&message(kind, &words, None, name), &fds, Some(Instant::now()));
        }
        drop(far);
        let options = Options { trust: false, ..Options::default() };
        let ended = if to_sender {
            Sender::over(near, options).and_then(|mut sender| sender.send_from(&[7; 5000])).is_err()
        } else {
            let receiver = Receiver::over(near, &options);
            let received: Result<(), Error> = receiver.and_then(|mut receiver| {
                let mut few = [0; 64];
                loop {
                    receiver.recv_into(&mut few)?;
                }
            });
            received.is_err()
        };
        prop_assert!(ended);
    }
}

/// A sender offers every mechanism with absurd knobs and without descriptors. The receiver refuses
/// each offer and handles the next.
#[test]
fn offers_that_make_no_sense_are_refused_and_the_next_is_heard() {
    let (near, far) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let end = scope.spawn(|| Receiver::over(far, &Options::default()).map(drop));
        shake_hands(&near);
        let mut answer = [0; 16 << 10];
        let needs_memory = |name: &&str| {
            ["slot", "pipe", "sndbuf"].iter().any(|knob| {
                let way = MECHANISMS.iter().find(|way| way.info().name == *name).unwrap();
                way.info().knobs.iter().any(|own| own.name == *knob)
            })
        };
        let names = MECHANISMS.iter().map(|way| way.info().name).filter(needs_memory);
        for name in names.chain(["carrier-pigeon"]) {
            let offer = message(OFFER, &[u64::MAX; 4], Some(("slot", u64::MAX)), name);
            near.send(&offer, &[]).unwrap();
            let (len, _) = near.receive(&mut answer).unwrap();
            assert!(len >= 16);
            assert_eq!(answer[6..8], REFUSE.to_le_bytes(), "{name}");
        }
        drop(near);
        let error = end.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::PeerDied { .. }), "{error}");
    });
}
