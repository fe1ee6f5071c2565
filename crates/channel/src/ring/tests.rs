#![allow(clippy::unwrap_used, clippy::unnecessary_wraps)]
mod races;

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thalweg_core::cadence::LIVENESS;
use thalweg_sys::futex;

fn small(capacity: u64) -> Options {
    Options { capacity, ..Options::default() }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) ^ (at >> 8) ^ seed) as u8).collect()
}

fn now() -> Option<Instant> {
    Some(Instant::now())
}

#[test]
fn every_size_up_to_the_largest_arrives_in_place() {
    for options in [
        small(8192),
        Options { trusted: false, ..small(8192) },
        Options { checksums: true, ..small(8192) },
        Options { checksums: true, trusted: false, ..small(8192) },
    ] {
        let (mut producer, mut consumer) = pair(&options).unwrap();
        let largest = producer.largest();
        assert_eq!(largest, 8192 - 32);
        let sizes = [0, 1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, largest - 1, largest];
        for (seed, len) in sizes.into_iter().cycle().take(60).enumerate() {
            let message = pattern(len, seed);
            let mut loan = producer.loan(len).unwrap();
            assert_eq!(loan.as_ptr() as usize % 32, 0);
            loan.copy_from_slice(&message);
            loan.commit().unwrap();
            let sample = consumer.receive().unwrap();
            assert_eq!(&*sample, &message[..], "{len}");
        }
        assert_eq!((producer.sent(), consumer.received()), (60, 60));
        assert_eq!(producer.epoch(), consumer.epoch());
    }
}

#[test]
fn what_is_too_large_is_refused_with_the_way_out() {
    let (mut producer, _consumer) = pair(&small(4096)).unwrap();
    let refused = producer.send(&[0; 4065]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { len: 4065, most: 4064, .. }), "{refused:?}");
    assert!(refused.to_string().contains("bulk"), "{refused}");
    for len in [4065, usize::MAX - 31, usize::MAX] {
        assert!(matches!(producer.arm(len), Err(Error::TooLarge { .. })), "{len}");
    }
    let refused = pair(&small(u64::MAX)).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
}

#[test]
fn a_dropped_loan_never_was_and_a_kept_sample_keeps_its_room() {
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    producer.loan(100).unwrap().fill(1);
    assert!(consumer.try_receive().unwrap().is_none());
    for message in [b"first", b"again"] {
        producer.send(message).unwrap();
    }
    let sample = consumer.receive().unwrap();
    assert_eq!(&*sample, b"first");
    assert!(producer.try_loan(4000).unwrap().is_none());
    assert_eq!(producer.loan_until(4000, now()).err(), Some(Error::Timeout));
    drop(sample);
    assert_eq!(producer.drained_until(now()).err(), Some(Error::Timeout));
    assert_eq!(&*consumer.receive().unwrap(), b"again");
    producer.drained_until(None).unwrap();
    assert!(producer.try_loan(4000).unwrap().is_some());
    assert_eq!(consumer.receive_until(now()).err(), Some(Error::Timeout));
}

#[test]
fn a_detached_loan_is_committed_later_and_by_its_producer_alone() {
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    let (mut other, _other) = pair(&small(4096)).unwrap();
    let mut loan = producer.loan(10).unwrap();
    loan.copy_from_slice(b"0123456789");
    let detached = loan.detach();
    assert_eq!((detached.len(), detached.is_empty()), (10, false));
    let mut loan = producer.attach(detached).unwrap();
    loan.truncate(11);
    assert_eq!(&*loan, b"0123456789");
    loan.truncate(4);
    loan.commit().unwrap();
    assert_eq!(&*consumer.receive().unwrap(), b"0123");

    let detached = producer.loan(1).unwrap().detach();
    assert!(matches!(other.attach(detached), Err(Error::NotPermitted { .. })));
    let detached = producer.loan(1).unwrap().detach();
    producer.send(b"between").unwrap();
    assert!(matches!(producer.attach(detached), Err(Error::NotPermitted { .. })));
    let detached = producer.loan(1).unwrap().detach();
    drop(consumer);
    assert_eq!(producer.attach(detached).err(), Some(Error::Closed { delivered: 1 }));
}

#[test]
fn a_batch_appears_at_once_and_is_released_at_once() {
    for checksums in [false, true] {
        let options = Options { checksums, ..small(4096) };
        let (mut producer, mut consumer) = pair(&options).unwrap();
        for round in 0..50 {
            let mut batch = producer.batch();
            let mut count = 0;
            while let Some(room) = batch.loan(count * 7).unwrap() {
                room.copy_from_slice(&pattern(count * 7, round));
                count += 1;
            }
            assert_eq!(batch.len(), count as u64);
            assert!(consumer.try_receive().unwrap().is_none());
            assert_eq!(batch.commit().unwrap(), count as u64);
            let mut samples = consumer.receive_all().unwrap();
            for seen in 0..count {
                assert_eq!(samples.next().unwrap().unwrap(), pattern(seen * 7, round));
            }
            assert!(samples.next().unwrap().is_none());
        }
        assert_eq!(producer.batch().commit().unwrap(), 0);
    }
}

#[test]
fn samples_that_were_not_looked_at_stay() {
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    for message in [b"a", b"b", b"c"] {
        producer.send(message).unwrap();
    }
    let mut samples = consumer.receive_all().unwrap();
    assert_eq!(samples.next().unwrap().unwrap(), b"a");
    drop(samples);
    assert_eq!(&*consumer.receive().unwrap(), b"b");
    assert_eq!(&*consumer.receive().unwrap(), b"c");
}

#[test]
fn a_goodbye_comes_after_the_last_message_and_says_how_many() {
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    producer.send(b"one").unwrap();
    producer.send(b"two").unwrap();
    drop(producer);
    assert_eq!(&*consumer.receive().unwrap(), b"one");
    assert_eq!(&*consumer.receive().unwrap(), b"two");
    for _ in 0..2 {
        assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 2 }));
        assert_eq!(consumer.try_receive().err(), Some(Error::Closed { delivered: 2 }));
    }
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    for _ in 0..5 {
        producer.send(b"x").unwrap();
    }
    drop(consumer.receive().unwrap());
    drop(consumer);
    assert_eq!(producer.send(b"x").err(), Some(Error::Closed { delivered: 1 }));
}

#[test]
fn a_sleeper_wakes_for_a_message_for_room_and_for_a_goodbye() {
    for wait in [Wait::Block, Wait::HYBRID, Wait::Spin] {
        let (mut producer, mut consumer) = pair(&Options { wait, ..small(4096) }).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..100u32 {
                    if number % 10 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let mut loan = producer.loan(1000).unwrap();
                    loan[..4].copy_from_slice(&number.to_le_bytes());
                    loan.commit().unwrap();
                }
            });
            for number in 0..100u32 {
                if number % 15 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let sample = consumer.receive().unwrap();
                assert_eq!(sample[..4], number.to_le_bytes());
            }
            assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 100 }));
        });
    }
}

/// After a lost wake-up, a sleeper still finds its bytes when it checks again after [`LIVENESS`], but late. This test
/// looks for late messages.
#[test]
fn no_wake_up_is_lost_in_a_hundred_sleeps_of_either_end() {
    for is_producer_slow in [true, false] {
        // A busy machine delays a thread now and then, but not in each of five attempts.
        let late = (0..5).map(|_| late_messages(is_producer_slow)).take_while(|late| *late > 0);
        let late: Vec<usize> = late.collect();
        assert!(late.len() < 5, "the producer is slow: {is_producer_slow}; late: {late:?}");
    }
}

/// Returns how many of 128 messages came so late that their wake-up must have been lost. Stops counting at 2.
fn late_messages(is_producer_slow: bool) -> usize {
    let options = Options { wait: Wait::Block, ..small(4096) };
    let (mut producer, mut consumer) = pair(&options).unwrap();
    let pause = |is_slow: bool| is_slow.then(|| std::thread::sleep(Duration::from_millis(1)));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..128 {
                pause(is_producer_slow);
                // An error ends this loop, because the other thread drops the consumer after two late messages.
                let Ok(()) = producer.send(&[7; 3000]) else { break };
            }
        });
        let is_late = |_: &i32| {
            pause(!is_producer_slow);
            let begun = Instant::now();
            drop(consumer.receive().unwrap());
            begun.elapsed() > LIVENESS / 2
        };
        let late = (0..128).filter(is_late).take(2).count();
        drop(consumer);
        late
    })
}

fn wait(fd: impl rustix::fd::AsFd) -> bool {
    thalweg_sys::io::wait_readable(fd, Some(Duration::from_millis(1))).unwrap()
}

#[test]
fn an_event_loop_polls_the_link() {
    let (mut producer, mut consumer) = pair(&small(4096)).unwrap();
    for _ in 0..3 {
        assert!(consumer.arm().unwrap());
        assert!(!wait(&consumer));
        producer.send(&[5; 4000]).unwrap();
        assert!(wait(&consumer));
        assert!(!consumer.arm().unwrap());
        assert!(producer.arm(100).unwrap());
        assert!(!wait(&producer));
        assert_eq!(consumer.try_receive().unwrap().unwrap().len(), 4000);
        assert!(wait(&producer));
        assert!(!producer.arm(100).unwrap());
        assert!(producer.try_loan(100).unwrap().is_some());
        assert!(consumer.try_receive().unwrap().is_none());
    }
    assert!(consumer.arm().unwrap());
    drop(producer);
    assert!(wait(&consumer));
    assert_eq!(consumer.try_receive().err(), Some(Error::Closed { delivered: 3 }));
}

/// When a process dies, the kernel marks its robust-list word before it frees the memory. Only after that does it close
/// the sockets and signal the pidfd. In this test the link stays open, so only the mark can show the death.
#[test]
fn an_event_loop_sees_a_death_before_the_link_of_the_dead_process_closes() {
    let (producer, mut consumer) = pair(&small(4096)).unwrap();
    if !consumer.end.sleeps_on_futexes() {
        return;
    }
    assert!(consumer.arm().unwrap());
    let word = &producer.end.own.words().alive.0.node.word;
    word.fetch_or(futex::OWNER_DIED, Ordering::Release);
    futex::wake_one(word).unwrap();
    let told = thalweg_sys::io::wait_readable(&consumer, Some(Duration::from_secs(60)));
    assert_eq!(told, Ok(true));
    let died = Error::PeerDied { delivered: 0, partial: 0 };
    assert_eq!(consumer.try_receive().err(), Some(died));
}

#[test]
fn two_ends_of_one_role_are_refused_with_the_reason() {
    let (near, far) = Link::pair().unwrap();
    let other = std::thread::spawn(move || Producer::open(far, &Options::default()).err());
    let refused = Producer::open(near, &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("same role"), "{refused}");
    assert!(matches!(other.join().unwrap(), Some(Error::NotPermitted { .. })));
    let (near, far) = Link::pair().unwrap();
    let other = std::thread::spawn(move || Consumer::open(far, &Options::default()).err());
    let refused = Consumer::open(near, &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("same role"), "{refused}");
    assert!(matches!(other.join().unwrap(), Some(Error::NotPermitted { .. })));
}

#[test]
fn a_second_consumer_is_refused() {
    use crate::link::{Address, Listener};
    let place = tempfile::tempdir().unwrap();
    let address = Address::at(place.path().join("ring"));
    let listener = Listener::bind(&address).unwrap();
    let first = Link::connect(&address).unwrap();
    let second = Link::connect(&address).unwrap();
    let consumer = std::thread::spawn(move || Consumer::open(first, &Options::default()).unwrap());
    let mut producer = Producer::accept(listener, &Options::default(), None).unwrap();
    let refused = Consumer::open(second, &Options::default()).unwrap_err();
    assert!(refused.to_string().contains("consumer already"), "{refused}");
    assert!(Link::connect(&address).is_err());
    producer.send(b"for the first").unwrap();
    assert_eq!(&*consumer.join().unwrap().receive().unwrap(), b"for the first");
}

#[test]
fn a_peer_that_leaves_in_the_handshake_does_not_count() {
    use crate::link::{Address, Listener};
    let place = tempfile::tempdir().unwrap();
    let address = Address::at(place.path().join("ring"));
    let listener = Listener::bind(&address).unwrap();
    drop(Link::connect(&address).unwrap());
    let noise = Link::connect(&address).unwrap();
    noise.send(b"GET / HTTP/1.1", &[]).unwrap();
    let link = Link::connect(&address).unwrap();
    let consumer = std::thread::spawn(move || Consumer::open(link, &Options::default()).unwrap());
    let mut producer = Producer::accept(listener, &Options::default(), None).unwrap();
    producer.send(b"hello").unwrap();
    assert_eq!(&*consumer.join().unwrap().receive().unwrap(), b"hello");
}

#[test]
fn a_silent_peer_in_the_handshake_does_not_block_the_next() {
    use crate::link::{Address, Listener};
    let place = tempfile::tempdir().unwrap();
    let address = Address::at(place.path().join("ring"));
    let listener = Listener::bind(&address).unwrap();
    let options = Options::default();
    let silent = Link::connect(&address).unwrap();
    // This process sends its first message and then no other.
    let rude = Link::connect(&address).unwrap();
    let rude = ask(rude, None).unwrap();
    let (link, again) = (Link::connect(&address).unwrap(), address.clone());
    let consumer = std::thread::spawn(move || {
        let mut opened = Consumer::open(link, &options);
        // On a slow machine this consumer may itself exceed the limit, and then retries.
        while opened.is_err() {
            opened = Consumer::open(Link::connect(&again).unwrap(), &options);
        }
        opened.unwrap()
    });
    let patience = Duration::from_secs(1);
    let mut producer = Producer::accept_each(&listener, &options, None, patience).unwrap();
    producer.send(b"hello").unwrap();
    assert_eq!(&*consumer.join().unwrap().receive().unwrap(), b"hello");
    drop(rude);
    // The silent process was disconnected. The caller's own deadline also applies.
    let mut offer = [0; 64];
    assert_eq!(silent.receive(&mut offer).unwrap().0, 64);
    assert_eq!(silent.receive(&mut offer).unwrap_err(), Error::Closed { delivered: 0 });
    let _mute = Link::connect(&address).unwrap();
    let soon = Some(Instant::now() + Duration::from_millis(100));
    let late = Producer::accept_each(&listener, &options, soon, Duration::from_secs(600));
    assert_eq!(late.unwrap_err(), Error::Timeout);
}

#[test]
fn a_series_of_failing_callers_does_not_outlast_the_deadline() {
    use crate::link::{Address, Listener};
    let place = tempfile::tempdir().unwrap();
    let address = Address::at(place.path().join("ring"));
    let listener = Listener::bind(&address).unwrap();
    let mut loud = Vec::new();
    for _ in 0..20 {
        drop(Link::connect(&address).unwrap());
        let noise = Link::connect(&address).unwrap();
        noise.send(b"GET / HTTP/1.1", &[]).unwrap();
        loud.push(noise);
    }
    let now = Some(Instant::now());
    let options = Options::default();
    let late = Producer::accept_each(&listener, &options, now, Duration::from_secs(600));
    assert_eq!(late.unwrap_err(), Error::Timeout);
    // The deadline ended the call, although other processes still wait.
    let next = listener.accept_until(now).unwrap();
    drop(next);
    // The error of a ring that cannot be created is returned before any waiting process is refused.
    let large = Options { capacity: u64::MAX, ..options };
    let refused = Producer::accept(listener, &large, None).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
}

/// An operation that is applied to the ring and to the reference queue.
#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Abort(usize),
    Batch(Vec<usize>),
    Receive,
    ReceiveAll(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let len = || prop_oneof![0usize..200, 0usize..4065];
    let act = prop_oneof![
        3 => len().prop_map(Act::Send),
        1 => len().prop_map(Act::Abort),
        1 => prop::collection::vec(len(), 0..6).prop_map(Act::Batch),
        3 => Just(Act::Receive),
        1 => (0usize..5).prop_map(Act::ReceiveAll),
    ];
    prop::collection::vec(act, 1..120)
}

/// Checks that the ring accepts a message exactly if the reference queue has room for it.
fn check_against_a_queue(acts: Vec<Act>, options: &Options) {
    let (mut producer, mut consumer) = pair(options).unwrap();
    let mut queue: VecDeque<Vec<u8>> = VecDeque::new();
    let takes = |len: usize| crate::layout::occupied(len as u64);
    let mut seed = 0;
    for act in acts {
        seed += 1;
        let used: u64 = queue.iter().map(|message| takes(message.len())).sum();
        match act {
            Act::Send(len) => {
                let message = pattern(len, seed);
                let fits = used + takes(len) <= 4096;
                assert_eq!(producer.try_send(&message).unwrap(), fits);
                if fits {
                    queue.push_back(message);
                }
            }
            Act::Abort(len) => {
                if let Some(mut loan) = producer.try_loan(len).unwrap() {
                    loan.fill(0xee);
                }
            }
            Act::Batch(lens) => {
                let mut batch = producer.batch();
                for len in lens {
                    if let Some(room) = batch.loan(len).unwrap() {
                        let message = pattern(len, seed + len);
                        room.copy_from_slice(&message);
                        queue.push_back(message);
                    }
                }
                batch.commit().unwrap();
                let used: u64 = queue.iter().map(|message| takes(message.len())).sum();
                assert!(used <= 4096);
            }
            Act::Receive => {
                let sample = consumer.try_receive().unwrap();
                assert_eq!(sample.as_deref(), queue.pop_front().as_deref());
            }
            Act::ReceiveAll(most) if !queue.is_empty() => {
                let mut samples = consumer.receive_all().unwrap();
                for _ in 0..most.min(queue.len()) {
                    assert_eq!(samples.next().unwrap(), queue.pop_front().as_deref());
                }
            }
            Act::ReceiveAll(_) => {}
        }
    }
    drop(producer);
    while let Some(expected) = queue.pop_front() {
        assert_eq!(&*consumer.receive().unwrap(), &expected[..]);
    }
    assert!(matches!(consumer.receive(), Err(Error::Closed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_ring_is_a_queue(acts in acts(), trusted: bool, checksums: bool) {
        check_against_a_queue(acts, &Options { trusted, checksums, ..small(4096) });
    }
}
