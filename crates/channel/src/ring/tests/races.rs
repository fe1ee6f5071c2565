//! Two threads at the two ends of a ring, for ThreadSanitizer (`make tsan`). As ordinary tests they only compare the
//! received data.
//!
//! ThreadSanitizer identifies memory by its address. The two ends normally have separate mappings, even in one process,
//! so ThreadSanitizer would not see their races. Here both ends therefore share one mapping. ThreadSanitizer cannot see
//! accesses by other processes.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::shared::memory::{SideMemory, Sides};
use std::time::{Duration, Instant};

/// Runs `body` with both ends of a ring of two pages, both at one address.
fn at_one_mapping(options: &Options, body: impl FnOnce(Producer, Consumer)) {
    let page = rustix::param::page_size();
    let geometry = Geometry {
        header: Geometry::header_len(),
        capacity: 2 * page as u64,
        checksums: options.checksums,
        epoch: 7,
        process: std::process::id(),
    };
    let (head, _) = SideMemory::make(Role::Producer, geometry).unwrap();
    let (tail, _) = SideMemory::make(Role::Consumer, geometry).unwrap();
    let heads = [(); 2].map(|()| head.share());
    let tails = [(); 2].map(|()| tail.share());
    let ([ours, theirs], [their_own, our_view]) = (heads, tails);
    let (near, far) = Link::pair().unwrap();
    let producer = Producer::over(ChannelEnd::new(
        Sides { own: ours, peer: our_view },
        LinkLine::new(near, 0),
        options.wait,
    ));
    let consumer = Consumer::over(
        ChannelEnd::new(
            Sides { own: their_own, peer: theirs },
            LinkLine::new(far, 0),
            options.wait,
        ),
        options,
    );
    body(producer, consumer);
    // `head` and `tail` own the robust-list registrations of both ends. Drop them after all their users.
    drop((head, tail));
}

fn every_kind() -> Vec<Options> {
    let waits = [Wait::Block, Wait::HYBRID, Wait::Spin];
    let kinds = waits.into_iter().flat_map(|wait| {
        [(true, false), (true, true), (false, true)].map(|(trusted, checksums)| Options {
            wait,
            trusted,
            checksums,
            ..Options::default()
        })
    });
    kinds.collect()
}

/// Returns the payload of message `number`. Its length and bytes depend on the number.
fn message(number: usize) -> Vec<u8> {
    let len = number * 37 % 3000;
    (0..len).map(|at| (at ^ number ^ (number >> 8)) as u8).collect()
}

const MESSAGES: usize = 1500;

#[test]
fn messages_cross_between_two_threads() {
    for options in every_kind() {
        at_one_mapping(&options, |mut producer, mut consumer| {
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let bytes = message(number);
                        let mut loan = producer.loan(bytes.len()).unwrap();
                        loan.copy_from_slice(&bytes);
                        loan.commit().unwrap();
                    }
                });
                for number in 0..MESSAGES {
                    assert_eq!(*consumer.receive().unwrap(), message(number)[..], "{options:?}");
                }
                let closed = Error::Closed { delivered: MESSAGES as u64 };
                assert_eq!(consumer.receive().err(), Some(closed));
            });
        });
    }
}

#[test]
fn batches_cross_between_two_threads() {
    for options in every_kind() {
        at_one_mapping(&options, |mut producer, mut consumer| {
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut number = 0;
                    while number < MESSAGES {
                        let mut batch = producer.batch();
                        while number < MESSAGES {
                            let bytes = message(number);
                            let Some(room) = batch.loan(bytes.len()).unwrap() else { break };
                            room.copy_from_slice(&bytes);
                            number += 1;
                        }
                        if batch.commit().unwrap() == 0 {
                            producer.drained_until(None).unwrap();
                        }
                    }
                    producer.drained_until(None).unwrap();
                });
                let mut number = 0;
                while number < MESSAGES {
                    let mut samples = consumer.receive_all().unwrap();
                    while let Some(sample) = samples.next().unwrap() {
                        assert_eq!(*sample, message(number)[..], "{options:?}");
                        number += 1;
                    }
                }
            });
        });
    }
}

/// The consumer polls its link in an event loop, and sometimes receives with a deadline.
#[test]
fn an_event_loop_beside_a_producer_of_another_thread() {
    let options = Options { wait: Wait::Block, ..Options::default() };
    at_one_mapping(&options, |mut producer, mut consumer| {
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES / 10 {
                    producer.send(&message(number)).unwrap();
                    if number % 7 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let mut number = 0;
            while number < MESSAGES / 10 {
                if number % 2 == 0 && consumer.arm().unwrap() {
                    thalweg_sys::io::wait_readable(&consumer, None).unwrap();
                }
                let soon = Instant::now() + Duration::from_millis(1);
                match consumer.receive_until(Some(soon)) {
                    Ok(sample) => assert_eq!(*sample, message(number)[..]),
                    Err(Error::Timeout) => continue,
                    Err(error) => panic!("{error}"),
                }
                number += 1;
            }
        });
    });
}

/// The consumer holds two of every three messages, and two other threads give them back.
#[test]
fn held_messages_are_given_back_by_other_threads() {
    for options in every_kind() {
        at_one_mapping(&options, |mut producer, mut consumer| {
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        producer.send(&message(number)).unwrap();
                    }
                    producer.drained_until(None).unwrap();
                });
                let others = [(); 2].map(|()| {
                    let (give, take) = std::sync::mpsc::channel::<(usize, Held)>();
                    scope.spawn(move || {
                        for (number, held) in take {
                            assert_eq!(*held, message(number)[..], "{options:?}");
                        }
                    });
                    give
                });
                for number in 0..MESSAGES {
                    let sample = consumer.receive().unwrap();
                    assert_eq!(*sample, message(number)[..], "{options:?}");
                    if number % 3 != 0 {
                        others[number % 2].send((number, sample.hold())).unwrap();
                    }
                }
                drop(others);
                let closed = Error::Closed { delivered: MESSAGES as u64 };
                assert_eq!(consumer.receive().err(), Some(closed));
            });
        });
    }
}
