#![allow(clippy::unwrap_used)]
use super::*;
use crate::error::Error;
use crate::layout::{Frame, occupied};
use crate::ring::{Consumer, Options, Producer, pair};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

fn small() -> Options {
    Options { capacity: 4096, ..Options::default() }
}

fn kinds() -> [Options; 3] {
    [
        small(),
        Options { trusted: false, ..small() },
        Options { trusted: false, checksums: true, ..small() },
    ]
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31) ^ (at >> 8) ^ seed ^ (seed >> 8)) as u8).collect()
}

#[test]
fn messages_are_held_while_others_come_and_go_and_are_given_back_in_any_order() {
    for options in kinds() {
        let (mut producer, mut consumer) = pair(&options).unwrap();
        for number in 0..4 {
            producer.send(&pattern(900, number)).unwrap();
        }
        let first = consumer.receive().unwrap().hold();
        assert_eq!(*consumer.receive().unwrap(), pattern(900, 1)[..]);
        let third = consumer.receive().unwrap().hold();
        assert_eq!((consumer.held(), consumer.received()), (2, 3));
        // The second message was released, but the tail stays before the first, which is held.
        assert!(producer.try_loan(900).unwrap().is_none());
        drop(third);
        assert!(producer.try_loan(900).unwrap().is_none());
        assert_eq!(*first, pattern(900, 0)[..]);
        assert_eq!(first.as_ref().len(), 900);
        drop(first);
        assert!(producer.try_loan(900).unwrap().is_some());
        assert_eq!(*consumer.receive().unwrap(), pattern(900, 3)[..]);
        producer.drained_until(None).unwrap();
        assert_eq!(consumer.held(), 0);
    }
}

#[test]
fn some_of_a_batch_are_held() {
    for options in kinds() {
        let (mut producer, mut consumer) = pair(&options).unwrap();
        for number in 0..5 {
            producer.send(&pattern(500, number)).unwrap();
        }
        let mut samples = consumer.receive_all().unwrap();
        assert_eq!(samples.next().unwrap().unwrap(), pattern(500, 0));
        let second = samples.hold().unwrap().unwrap();
        assert_eq!(samples.next().unwrap().unwrap(), pattern(500, 2));
        // Give this message back while the batch is still being read.
        drop(samples.hold().unwrap().unwrap());
        drop(samples);
        assert_eq!(consumer.received(), 4);
        assert_eq!(producer.drained_until(Some(Instant::now())).err(), Some(Error::Timeout));
        assert_eq!(*consumer.receive().unwrap(), pattern(500, 4)[..]);
        // The first message was given back. The second is held, so the room from there on is still
        // occupied.
        let mut rest = producer.batch();
        assert_eq!((0..9).take_while(|_| rest.loan(500).unwrap().is_some()).count(), 3);
        assert_eq!(*second, pattern(500, 1)[..]);
        drop(second);
        producer.drained_until(None).unwrap();
    }
}

#[test]
fn what_is_held_outlives_both_ends_and_the_memory_goes_with_the_last() {
    for options in kinds() {
        let (mut producer, mut consumer) = pair(&options).unwrap();
        for number in 0..3 {
            producer.send(&pattern(1000, number)).unwrap();
        }
        drop(consumer.receive().unwrap());
        let held = [consumer.receive().unwrap().hold(), consumer.receive().unwrap().hold()];
        drop(consumer);
        // Only the message before the oldest held one counts as delivered.
        assert_eq!(producer.send(b"x").err(), Some(Error::Closed { delivered: 1 }));
        let epoch = producer.epoch();
        drop(producer);
        let (again, _consumer) = pair(&options).unwrap();
        assert_ne!(again.epoch(), epoch);
        let [second, third] = held;
        assert_eq!(*third, pattern(1000, 2)[..]);
        drop(third);
        assert_eq!(*second, pattern(1000, 1)[..]);
    }
}

#[test]
fn the_goodbye_comes_after_the_last_message_whatever_is_held() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    producer.send(b"one").unwrap();
    producer.send(b"two").unwrap();
    let one = consumer.receive().unwrap().hold();
    drop(producer);
    let two = consumer.receive().unwrap().hold();
    assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 2 }));
    assert_eq!((&*one, &*two, consumer.held()), (&b"one"[..], &b"two"[..], 2));
}

#[test]
fn a_ring_is_full_of_messages_that_are_held() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    let mut held = VecDeque::new();
    while let Some(loan) = producer.try_loan(0).unwrap() {
        loan.commit().unwrap();
        held.push_back(consumer.receive().unwrap().hold());
    }
    assert_eq!((held.len(), consumer.held()), (64, 64));
    assert!(consumer.try_receive().unwrap().is_none());
    // Give the messages back, newest first. Only the last one restores the room of the whole ring.
    while held.pop_back().is_some() {
        assert_eq!(producer.try_loan(4064).unwrap().is_some(), held.is_empty());
    }
}

#[test]
fn a_waiting_producer_is_woken_by_any_thread_that_releases() {
    for wait in [crate::Wait::Block, crate::Wait::HYBRID, crate::Wait::Spin] {
        let (mut producer, mut consumer) = pair(&Options { wait, ..small() }).unwrap();
        producer.send(&[1; 4000]).unwrap();
        for round in 0..20 {
            let held = consumer.receive().unwrap().hold();
            thread::scope(|scope| {
                // The consumer's own thread waits for a message, while these two threads run.
                scope.spawn(|| producer.send(&[round; 4000]).unwrap());
                scope.spawn(move || drop(held));
                assert!(consumer.receive().unwrap().iter().all(|byte| *byte == round));
            });
            producer.send(&[1; 4000]).unwrap();
        }
    }
}

#[test]
fn an_event_loop_of_the_producer_is_woken_when_there_is_space() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    producer.send(&[1; 4000]).unwrap();
    let held = consumer.receive().unwrap().hold();
    assert!(producer.arm(100).unwrap());
    thread::spawn(move || drop(held)).join().unwrap();
    let long = Some(std::time::Duration::from_secs(60));
    assert_eq!(thalweg_sys::io::wait_readable(&producer, long), Ok(true));
    assert!(producer.try_loan(100).unwrap().is_some());
}

#[test]
fn two_that_wait_for_each_other_are_found_out() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    for _ in 0..2 {
        producer.send(&pattern(1900, 0)).unwrap();
    }
    assert!(producer.arm(1900).unwrap());
    // A message is available, so neither end waits.
    assert!(!consumer.holds_up().unwrap());
    let held = consumer.receive().unwrap().hold();
    let second = consumer.receive().unwrap().hold();
    drop(held);
    // Repeated calls change nothing: the producer has room now, but has not checked for it yet.
    for _ in 0..10 {
        assert!(!consumer.holds_up().unwrap());
    }
    producer.send(&pattern(1900, 1)).unwrap();
    let third = consumer.receive().unwrap().hold();
    assert!(!consumer.holds_up().unwrap(), "the producer is awake");
    let waits = thread::scope(|scope| {
        let waits = scope.spawn(|| producer.send(&pattern(1900, 2)));
        while !consumer.holds_up().unwrap() {
            thread::yield_now();
        }
        drop((second, third));
        assert_eq!(*consumer.receive().unwrap(), pattern(1900, 2)[..]);
        waits.join().unwrap()
    });
    waits.unwrap();
    assert!(!consumer.holds_up().unwrap(), "nothing is held");
}

#[test]
fn a_producer_that_waits_for_all_releases_is_held_up_too() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    producer.send(b"last").unwrap();
    let held = consumer.receive().unwrap().hold();
    thread::scope(|scope| {
        let drains = scope.spawn(|| producer.drained_until(None));
        while !consumer.holds_up().unwrap() {
            thread::yield_now();
        }
        drop(held);
        drains.join().unwrap().unwrap();
    });
}

/// A producer must not overwrite held messages, even if the head itself is plausible.
#[test]
fn a_head_over_a_held_message_is_corrupt() {
    let (mut producer, mut consumer) = pair(&small()).unwrap();
    producer.send(&[1; 1000]).unwrap();
    producer.send(&[2; 1000]).unwrap();
    let held = consumer.receive().unwrap().hold();
    drop(consumer.receive().unwrap());
    // The first two frames take 1088 bytes each, and the first is held. The two frames of 2048
    // bytes after them would fit only if no message were held.
    for (at, seq) in [(2176, 2), (2176 + 2048, 3)] {
        let frame = Frame { len: 2000, seq, crc: None };
        producer.end.own.write_header(at, frame.to_words());
    }
    producer.end.publish(2176 + 4096);
    drop(consumer.receive().unwrap());
    let refused = consumer.receive().unwrap_err();
    assert!(refused.to_string().contains("held messages"), "{refused}");
    drop(held);
}

/// Reference model of a ring: the messages in it, their positions, and the held ones.
#[derive(Default)]
struct Model {
    head: u64,
    read: u64,
    sent: u64,
    queue: VecDeque<(u64, u64, usize)>,
    held: Vec<(u64, u64, Held)>,
}

impl Model {
    fn tail(&self) -> u64 {
        self.held.iter().map(|(at, _, _)| *at).chain([self.read]).min().unwrap_or(0)
    }

    fn send(&mut self, producer: &mut Producer, len: usize) {
        let fits = 4096 - (self.head - self.tail()) >= occupied(len as u64);
        let loan = producer.try_loan(len).unwrap();
        assert_eq!(loan.is_some(), fits, "{len} bytes at {}", self.head);
        let Some(mut loan) = loan else { return };
        loan.copy_from_slice(&pattern(len, self.sent));
        loan.commit().unwrap();
        self.queue.push_back((self.head, self.sent, len));
        self.head += occupied(len as u64);
        self.sent += 1;
    }

    /// Checks the next message that was received. `held` is `Some` if the message is held.
    fn take(&mut self, bytes: &[u8], held: Option<Held>) {
        let (at, number, len) = self.queue.pop_front().unwrap();
        assert_eq!(bytes, pattern(len, number));
        self.read = at + occupied(len as u64);
        self.held.extend(held.map(|held| (at, number, held)));
    }

    fn receive(&mut self, consumer: &mut Consumer, hold: bool) {
        let Some(sample) = consumer.try_receive().unwrap() else {
            assert!(self.queue.is_empty());
            return;
        };
        let bytes = sample.to_vec();
        let held = hold.then(|| sample.hold());
        self.take(&bytes, held);
    }

    fn batch(&mut self, consumer: &mut Consumer, most: usize, mask: usize) {
        if self.queue.is_empty() {
            return;
        }
        let mut samples = consumer.receive_all().unwrap();
        for at in 0..most {
            if mask & (1 << at) != 0 {
                let Some(held) = samples.hold().unwrap() else { break };
                let bytes = held.to_vec();
                self.take(&bytes, Some(held));
            } else {
                let Some(bytes) = samples.next().unwrap() else { break };
                let bytes = bytes.to_vec();
                self.take(&bytes, None);
            }
        }
        drop(samples);
    }

    fn check(&self, consumer: &Consumer) {
        assert_eq!(consumer.held(), self.held.len());
        for (_, number, held) in &self.held {
            assert_eq!(**held, pattern(held.len(), *number)[..], "message {number}");
        }
    }
}

proptest! {
    #[test]
    fn any_order_of_calls_does_as_a_queue_does(
        kind in 0..3usize,
        calls in proptest::collection::vec((0..9u8, 0..1500usize), 0..200),
    ) {
        let (mut producer, mut consumer) = pair(&kinds()[kind]).unwrap();
        let mut model = Model::default();
        for (call, number) in calls {
            match call {
                0..3 => model.send(&mut producer, number),
                3 => model.receive(&mut consumer, false),
                4 | 5 => model.receive(&mut consumer, true),
                6 => model.batch(&mut consumer, number % 5, number / 5),
                _ if model.held.is_empty() => {}
                _ => drop(model.held.swap_remove(number % model.held.len())),
            }
            model.check(&consumer);
        }
        while !model.queue.is_empty() {
            model.receive(&mut consumer, false);
        }
        model.held.clear();
        producer.drained_until(Some(Instant::now())).unwrap();
        prop_assert_eq!(consumer.received(), producer.sent());
    }
}
