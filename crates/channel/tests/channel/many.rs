//! Combinations of several rings: broadcast, and several producers with one consumer.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use thalweg_channel::{
    Arrival, Broadcast, Error, Link, Mpsc, Options, Producer, Slow, Subscription, Wait, pair,
};

fn small(wait: Wait) -> Options {
    Options { capacity: 4096, wait, ..Options::default() }
}

fn subscribe(broadcast: &mut Broadcast, options: Options) -> (u64, Subscription) {
    let (near, far) = Link::pair().unwrap();
    let opening = std::thread::spawn(move || Subscription::open(far, &options).unwrap());
    let id = broadcast.add(near, &options, None).unwrap();
    (id, opening.join().unwrap())
}

fn now() -> Instant {
    Instant::now()
}

#[test]
fn every_subscriber_gets_everything_when_all_wait() {
    let mut broadcast = Broadcast::new(Slow::Wait);
    broadcast.publish(b"to nobody").unwrap();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (_, mut subscription) = subscribe(&mut broadcast, small(Wait::Block));
            std::thread::spawn(move || {
                let mut seen = 0;
                loop {
                    match subscription.receive() {
                        Ok(notice) => {
                            seen += 1;
                            assert_eq!((notice.number(), notice.missed()), (seen, 0));
                            assert_eq!(notice.len(), (seen % 200) as usize);
                            assert!(notice.iter().all(|byte| *byte == seen as u8));
                        }
                        Err(error) => break (seen, error),
                    }
                }
            })
        })
        .collect();
    for number in 1..=5000u64 {
        broadcast.publish(&vec![number as u8; (number % 200) as usize]).unwrap();
    }
    assert_eq!((broadcast.published(), broadcast.subscribers()), (5001, 3));
    drop(broadcast);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), (5000, Error::Closed { delivered: 5000 }));
    }
}

#[test]
fn a_deadline_leaves_no_receiver_with_half_a_message() {
    let mut broadcast = Broadcast::new(Slow::Wait);
    let (_, mut first) = subscribe(&mut broadcast, small(Wait::Block));
    let (_, mut second) = subscribe(&mut broadcast, small(Wait::Block));
    broadcast.publish(&[1; 4000]).unwrap();
    drop(first.receive().unwrap());
    assert_eq!(broadcast.publish_until(&[2; 4000], Some(now())).err(), Some(Error::Timeout));
    assert_eq!(first.receive_until(Some(now())).err(), Some(Error::Timeout));
    assert_eq!(second.receive().unwrap()[0], 1);
    let refused = broadcast.publish(&[0; 4096]).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { most: 4056, .. }), "{refused:?}");
    broadcast.publish(&[3; 10]).unwrap();
    for subscription in [&mut first, &mut second] {
        let notice = subscription.receive().unwrap();
        assert_eq!((notice.number(), notice[0]), (1, 3));
    }
}

#[test]
fn the_oldest_are_dropped_and_counted_on_both_sides() {
    let mut broadcast = Broadcast::new(Slow::DropOldest { backlog: 3 });
    let (slow, mut subscription) = subscribe(&mut broadcast, small(Wait::Block));
    let (quick, mut other) = subscribe(&mut broadcast, small(Wait::Block));
    // Two messages of 2000 bytes fill the ring, three wait in the backlog, and the other five are
    // dropped.
    for number in 0..10u8 {
        broadcast.publish(&[number; 2000]).unwrap();
        assert_eq!(other.receive().unwrap()[0], number);
    }
    assert_eq!((broadcast.dropped(slow), broadcast.dropped(quick)), (Some(5), Some(0)));
    let mut seen = Vec::new();
    loop {
        while let Ok(notice) = subscription.receive_until(Some(now())) {
            seen.push((notice.number(), notice.missed()));
        }
        if broadcast.push_backlog().unwrap() == 0 && seen.len() == 5 {
            break;
        }
    }
    assert_eq!(seen, [(0, 0), (1, 0), (7, 5), (8, 0), (9, 0)]);
    assert_eq!((subscription.missed(), other.missed()), (5, 0));
    // A message that was not released is received again. The messages dropped before it must not be
    // counted twice.
    for number in 10..15u8 {
        broadcast.publish(&[number; 2000]).unwrap();
        drop(other.receive().unwrap());
    }
    let (received, missed) = (subscription.received(), subscription.missed());
    for _ in 0..3 {
        std::mem::forget(subscription.try_receive().unwrap().unwrap());
    }
    let notice = subscription.receive().unwrap();
    assert_eq!((notice.number(), notice.missed(), notice.largest()), (10, 0, 4056));
    let held = notice.hold();
    assert_eq!((subscription.received(), subscription.held()), (received + 1, 1));
    assert_eq!((subscription.missed(), held[0]), (missed, 10));
    assert_eq!(subscription.receive().unwrap()[0], 11);
}

#[test]
fn a_subscriber_that_leaves_is_reported_and_the_others_continue() {
    let mut broadcast = Broadcast::new(Slow::Wait);
    let (leaver, subscription) = subscribe(&mut broadcast, small(Wait::Block));
    let (_, mut stayer) = subscribe(&mut broadcast, small(Wait::Block));
    drop(subscription);
    broadcast.publish(b"news").unwrap();
    let departed = broadcast.take_departed();
    assert_eq!(departed.len(), 1);
    assert_eq!((departed[0].subscriber, departed[0].dropped), (leaver, 0));
    assert_eq!(departed[0].error, Error::Closed { delivered: 0 });
    assert_eq!(&*stayer.receive().unwrap(), b"news");
    assert_eq!(broadcast.subscribers(), 1);
}

#[test]
fn messages_of_many_producers_arrive_in_the_order_of_each() {
    for wait in [Wait::Block, Wait::HYBRID] {
        let mut mpsc = Mpsc::new(&small(wait));
        assert_eq!(mpsc.receive().err(), Some(Error::Closed { delivered: 0 }));
        let mut writers = Vec::new();
        for _ in 0..4 {
            let (near, far) = Link::pair().unwrap();
            writers.push(std::thread::spawn(move || {
                let mut producer = Producer::open(far, &small(wait)).unwrap();
                for number in 0..2000u32 {
                    producer.send(&number.to_le_bytes()).unwrap();
                    if number % 500 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }));
            mpsc.add(near, None).unwrap();
        }
        let (mut next, mut left) = ([0u32; 4], 0);
        while mpsc.producers() > 0 {
            match mpsc.receive().unwrap() {
                Arrival::Message { from, sample } => {
                    assert_eq!(sample[..], next[from as usize].to_le_bytes());
                    next[from as usize] += 1;
                }
                Arrival::Left { error, .. } => {
                    assert_eq!(error, Error::Closed { delivered: 2000 });
                    left += 1;
                }
            }
        }
        assert_eq!((next, left), ([2000; 4], 4));
        assert_eq!(mpsc.receive().err(), Some(Error::Closed { delivered: 8000 }));
        for writer in writers {
            writer.join().unwrap();
        }
    }
}

#[test]
fn a_quiet_crowd_is_a_timeout() {
    let mut mpsc = Mpsc::new(&small(Wait::Block));
    let (near, far) = Link::pair().unwrap();
    let opening = std::thread::spawn(move || Producer::open(far, &small(Wait::Block)).unwrap());
    mpsc.add(near, None).unwrap();
    let mut producer = opening.join().unwrap();
    let soon = now() + Duration::from_millis(10);
    assert_eq!(mpsc.receive_until(Some(soon)).err(), Some(Error::Timeout));
    producer.send(b"late").unwrap();
    let Arrival::Message { from: 0, sample } = mpsc.receive_until(Some(now())).unwrap() else {
        panic!("a message was there")
    };
    assert_eq!(&*sample, b"late");
}

fn is_readable<'a>(mut descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    descriptors.any(|fd| thalweg_sys::io::wait_readable(fd, Some(Duration::ZERO)).unwrap())
}

#[test]
fn an_event_loop_polls_many_producers() {
    let mut mpsc = Mpsc::new(&small(Wait::Block));
    assert!(!mpsc.arm() && mpsc.descriptors().next().is_none());
    let (mut first, consumer) = pair(&small(Wait::Block)).unwrap();
    let (mut second, other) = pair(&small(Wait::Block)).unwrap();
    mpsc.admit(consumer);
    mpsc.admit(other);
    for producer in [&mut second, &mut first] {
        assert!(mpsc.arm() && !is_readable(mpsc.descriptors()));
        producer.send(b"news").unwrap();
        assert!(is_readable(mpsc.descriptors()) && !mpsc.arm());
        let Arrival::Message { sample, .. } = mpsc.receive_until(Some(now())).unwrap() else {
            panic!("a message was there")
        };
        assert_eq!(&*sample, b"news");
    }
    assert!(mpsc.arm());
    drop(first);
    assert!(is_readable(mpsc.descriptors()) && !mpsc.arm());
    let left = mpsc.receive_until(Some(now())).unwrap();
    assert!(matches!(left, Arrival::Left { from: 0, error: Error::Closed { delivered: 1 } }));
    drop(left);
    assert!(mpsc.arm() && !is_readable(mpsc.descriptors()));
}

#[test]
fn an_event_loop_polls_many_subscribers_for_room() {
    let mut broadcast = Broadcast::new(Slow::Wait);
    assert!(!broadcast.arm(10).unwrap());
    let (_, mut first) = subscribe(&mut broadcast, small(Wait::Block));
    let (_, second) = subscribe(&mut broadcast, small(Wait::Block));
    assert!(!broadcast.arm(4000).unwrap());
    broadcast.publish(&[1; 4000]).unwrap();
    assert_eq!(broadcast.publish_until(&[2; 4000], Some(now())).err(), Some(Error::Timeout));
    assert!(broadcast.arm(4000).unwrap() && !is_readable(broadcast.descriptors()));
    drop(first.receive().unwrap());
    assert!(is_readable(broadcast.descriptors()) && broadcast.arm(4000).unwrap());
    drop(second);
    assert!(is_readable(broadcast.descriptors()));
    let refused = broadcast.arm(4096).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { most: 4056, .. }), "{refused:?}");
    broadcast.publish(&[2; 4000]).unwrap();
    assert_eq!((broadcast.subscribers(), first.receive().unwrap()[0]), (1, 2));
}
