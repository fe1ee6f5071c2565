//! Every mechanism delivers the same bytes between two processes, whatever their number and their
//! position in memory. Later writes of the sender to its buffer do not change the received bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use thalweg_channel::Link;
use thalweg_channel::bulk::{MECHANISMS, Mechanism, Receiver, Sender};
use thalweg_core::Tuning;

use super::peer::{Peer, Script, difference, fill};
use thalweg_testing::skip;

/// Returns the mechanisms that work in this environment, and counts a skip for each of the others.
pub fn working() -> Vec<&'static dyn Mechanism> {
    let works = |mechanism: &&&dyn Mechanism| match mechanism.probe() {
        Ok(()) => true,
        Err(why) => {
            skip(mechanism.info().name, &why.reason);
            false
        }
    };
    MECHANISMS.iter().filter(works).copied().collect()
}

/// Returns pairs of a length and an offset. The lengths are around every size at which a mechanism
/// may split a buffer, and most offsets are unaligned.
fn buffers(tuning: &Tuning, mechanism: &dyn Mechanism) -> Vec<(usize, usize)> {
    let mut all = vec![(0, 0), (1, 0), (4095, 1), (4097, 3), (65536, 0), (65537, 63)];
    for knob in mechanism.info().knobs {
        let value = mechanism.info().knob(tuning, knob.name) as usize;
        if (2..=256 << 10).contains(&value) {
            all.extend([(value - 1, 5), (value, 0), (value + 1, 1), (value * 3 + 7, 4095)]);
        }
    }
    all
}

fn script(mechanism: &dyn Mechanism, tuning: &Tuning, buffers: Vec<(usize, usize)>) -> Script {
    Script {
        mechanism: Some(mechanism.info().name.to_owned()),
        tuning: tuning.clone(),
        buffers,
        ..Script::default()
    }
}

/// Receives from the other process. Checks each buffer after its arrival, and all of them again at
/// the end.
#[track_caller]
fn receive_all(script: &Script) {
    let script = Script { sends: true, ..script.clone() };
    let (peer, link) = Peer::start(&script);
    let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
    let mut kept = Vec::new();
    for (seed, (len, at)) in script.buffers.iter().enumerate() {
        let mut memory = vec![0xdd; at + len];
        assert_eq!(receiver.recv_into(&mut memory[*at..]).expect("a buffer"), *len);
        let wrong = difference(seed as u64, &memory[*at..]);
        assert_eq!(wrong, None, "{script:?}: buffer {seed} of {len} bytes");
        assert!(memory[..*at].iter().all(|byte| *byte == 0xdd), "written before the start");
        kept.push(memory);
    }
    assert_eq!(receiver.next_len().expect("a goodbye"), None);
    peer.finish();
    for (seed, (memory, (_, at))) in kept.iter().zip(&script.buffers).enumerate() {
        assert_eq!(difference(seed as u64, &memory[*at..]), None, "{script:?}: changed later");
    }
}

/// Sends to the other process, which checks the bytes. Overwrites each buffer after sending it.
#[track_caller]
fn send_all(script: &Script) {
    let (peer, link) = Peer::start(script);
    let mut sender = Sender::over(link, script.options()).expect("a mechanism");
    for (seed, (len, at)) in script.buffers.iter().enumerate() {
        let mut memory = vec![0; at + len];
        fill(seed as u64, &mut memory[*at..]);
        sender.send_from(&memory[*at..]).expect("a transfer");
        memory.fill(0xee);
    }
    sender.finish();
    peer.finish();
}

fn named(mechanism: &dyn Mechanism, tuning: &Tuning, body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        eprintln!("with {} {tuning}", mechanism.info().name);
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_mechanism_delivers_every_length_from_every_place_to_every_place() {
    for mechanism in working() {
        for tuning in mechanism.info().tunings() {
            let buffers = buffers(&tuning, mechanism);
            named(mechanism, &tuning, || receive_all(&script(mechanism, &tuning, buffers)));
        }
    }
}

#[test]
fn every_mechanism_sends_as_well_as_it_receives() {
    for mechanism in working() {
        let tuning = Tuning::default();
        let buffers = buffers(&tuning, mechanism);
        named(mechanism, &tuning, || send_all(&script(mechanism, &tuning, buffers)));
    }
}

#[test]
fn every_mechanism_delivers_large_buffers_one_after_the_other() {
    let len = (8 << 20) + 3;
    for mechanism in working() {
        let tuning = Tuning::default();
        let buffers = vec![(len, 0), (len, 1), (5, 0), (len - 4096, 17)];
        named(mechanism, &tuning, || receive_all(&script(mechanism, &tuning, buffers)));
    }
}

/// Sends loans to a receiver that receives into new memory and writes to it.
#[test]
fn every_mechanism_moves_loans_into_new_memory() {
    for mechanism in working() {
        let tuning = Tuning::default();
        let script = Script {
            sends: true,
            loans: true,
            ..script(
                mechanism,
                &tuning,
                vec![(0, 0), (1, 0), (4097, 0), ((2 << 20) + 5, 0), (70000, 0)],
            )
        };
        named(mechanism, &tuning, || {
            let (peer, link) = Peer::start(&script);
            let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
            let mut kept = Vec::new();
            for (seed, (len, _)) in script.buffers.iter().enumerate() {
                let mut memory = receiver.recv_new().expect("a buffer");
                assert_eq!(memory.len(), *len);
                assert_eq!(difference(seed as u64, &memory), None, "buffer {seed} of {len}");
                if let Some(last) = memory.last_mut() {
                    *last = !*last;
                }
                kept.push(memory);
            }
            assert_eq!(receiver.next_len().expect("a goodbye"), None);
            peer.finish();
            for (seed, memory) in kept.iter_mut().enumerate() {
                if let Some(last) = memory.last_mut() {
                    *last = !*last;
                }
                assert_eq!(difference(seed as u64, memory), None, "changed later");
            }
        });
    }
}

/// Runs both ends in two threads of one process.
#[test]
fn two_threads_are_served_like_two_processes() {
    for mechanism in working() {
        let (near, far) = Link::pair().unwrap();
        let options = script(mechanism, &Tuning::default(), Vec::new()).options();
        let mut memory = vec![0; 300_000];
        fill(1, &mut memory);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut sender = Sender::over(near, options.clone()).expect("a mechanism");
                sender.send_from(&memory).expect("a transfer");
                sender.send_from(&memory).expect("a transfer");
            });
            let mut receiver = Receiver::over(far, &options).expect("a mechanism");
            let mut got = vec![0; memory.len() + 1];
            let short = receiver.recv_into(&mut got[..10]).unwrap_err();
            assert!(matches!(short, thalweg_channel::Error::TooLarge { .. }), "{short}");
            for _ in 0..2 {
                assert_eq!(receiver.recv_into(&mut got).expect("a buffer"), memory.len());
                assert_eq!(difference(1, &got[..memory.len()]), None, "{}", mechanism.info().name);
            }
            let end = receiver.recv_into(&mut got).unwrap_err();
            assert!(matches!(end, thalweg_channel::Error::Closed { .. }), "{end}");
            sender.join().unwrap();
        });
    }
}

/// Moves more bytes than one call can take, and more than 31 bits can count.
#[test]
fn over_two_gibibytes_arrive_whole() {
    let test = "over_two_gibibytes_arrive_whole";
    let len = (2 << 30) + 4097;
    if std::env::var_os("THALWEG_LARGE").is_none() {
        return skip(test, "takes memory for three buffers of 2 GiB; set THALWEG_LARGE=1");
    }
    for mechanism in working() {
        let tuning = Tuning::default();
        named(mechanism, &tuning, || receive_all(&script(mechanism, &tuning, vec![(len, 0)])));
    }
}

/// A loan may outlive the sender that lent it, so another sender may send it.
#[test]
fn a_loan_of_another_sender_delivers_its_own_bytes() {
    const LEN: usize = 70_000;
    for mechanism in working() {
        let tuning = Tuning::default();
        let options = Script { loans: true, ..script(mechanism, &tuning, Vec::new()) }.options();
        let open_sender = |link| Sender::over(link, options.clone()).expect("a mechanism");
        let open_receiver = |link| Receiver::over(link, &options).expect("a mechanism");
        let [(near, far), (other_near, other_far)] = [(); 2].map(|()| Link::pair().unwrap());
        named(mechanism, &tuning, || {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(open_receiver(other_far).next_len(), Ok(None)));
                scope.spawn(|| {
                    let (mut receiver, mut memory) = (open_receiver(far), vec![0; LEN]);
                    for seed in 0..2 {
                        assert_eq!(receiver.recv_into(&mut memory), Ok(LEN));
                        assert_eq!(difference(seed, &memory), None, "buffer {seed}");
                    }
                });
                let (mut sender, mut other) = (open_sender(near), open_sender(other_near));
                let mut loans = [&mut sender, &mut other].map(|lender| lender.alloc(LEN).unwrap());
                for (seed, loan) in loans.iter_mut().enumerate() {
                    fill(seed as u64, loan);
                }
                for loan in loans {
                    sender.send_loan(loan).expect("a transfer");
                }
            });
        });
    }
}
