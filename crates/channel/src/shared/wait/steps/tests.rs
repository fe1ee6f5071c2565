//! Loom models, which try every order in which two processes can run these steps. A mutex and a condition variable
//! model the futex. They correspond to the kernel's hash bucket.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32 as Model32, AtomicU64 as Model64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::sync::atomic::Ordering::AcqRel;
use thalweg_sys::futex::OWNER_DIED;

impl WaitWord for Model32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

impl Cursor for Model64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Shared words of the model: two slots, a cursor for each side, a second one of the producer, and the words for
/// sleeping.
struct ModelWords {
    slots: [UnsafeCell<u64>; 2],
    head: Model64,
    /// Models the slot count of a bulk transfer. `head` then models its note count.
    second: Model64,
    tail: Model64,
    /// Models a word that both sides of a mechanism write.
    turn: Model32,
    producer_wake: Model32,
    producer_waiting: Model32,
    consumer_wake: Model32,
    consumer_waiting: Model32,
    alive: Model32,
    closed: Model32,
    bucket: Mutex<()>,
    woken: Condvar,
}

impl ModelWords {
    fn new() -> Arc<Self> {
        let word = || Model32::new(0);
        Arc::new(Self {
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
            head: Model64::new(0),
            second: Model64::new(0),
            tail: Model64::new(0),
            turn: word(),
            producer_wake: word(),
            producer_waiting: word(),
            consumer_wake: word(),
            consumer_waiting: word(),
            alive: word(),
            closed: word(),
            bucket: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    /// Models `futex_waitv`: sleeps while both words have these values. Compares them under the bucket's lock.
    fn wait(&self, wake: &Model32, wake_before: u32, alive_before: u32) {
        let guard = self.bucket.lock().expect("no thread panicked");
        if wake.load(Acquire) == wake_before && self.alive.load(Acquire) == alive_before {
            drop(self.woken.wait(guard).expect("no thread panicked"));
        }
    }

    /// Models `FUTEX_WAKE`.
    fn wake_sleepers(&self) {
        let _guard = self.bucket.lock().expect("no thread panicked");
        self.woken.notify_all();
    }

    /// Models a consumer that sleeps until `is_there` returns `true`.
    fn await_that(&self, is_there: impl Fn() -> bool) {
        let mut found = is_there();
        while !found {
            let value =
                announce_sleep::<Model64>(&self.consumer_waiting, ON_FUTEX, &self.producer_wake);
            found = is_there();
            if !found {
                self.wait(&self.producer_wake, value, 0);
            }
            wake_up(&self.consumer_waiting);
            found = found || is_there();
        }
    }

    /// Wakes the consumer if it sleeps. The producer calls this after a store to any word.
    fn announce(&self, sleeper: &mut Sleeper) {
        let waiting = announce::<Model64>(&self.consumer_waiting);
        if sleeper.due(waiting, &self.producer_wake) == ON_FUTEX {
            self.wake_sleepers();
        }
    }

    fn put(&self, sleeper: &mut Sleeper, at: u64, value: u64) {
        // SAFETY: loom reports every access that is not ordered with this one.
        self.slots[(at % 2) as usize].with_mut(|slot| unsafe { *slot = value });
        let waiting = publish(&self.head, at + 1, &self.consumer_waiting);
        if sleeper.due(waiting, &self.producer_wake) == ON_FUTEX {
            self.wake_sleepers();
        }
    }

    fn take(&self, sleeper: &mut Sleeper, at: u64) -> u64 {
        // SAFETY: as above.
        let value = self.slots[(at % 2) as usize].with(|slot| unsafe { *slot });
        let waiting = publish(&self.tail, at + 1, &self.producer_waiting);
        if sleeper.due(waiting, &self.consumer_wake) == ON_FUTEX {
            self.wake_sleepers();
        }
        value
    }

    /// Models a consumer that sleeps until the head is past `at`. Returns `false` if the producer died or closed its
    /// end before that.
    fn await_data(&self, at: u64) -> bool {
        loop {
            if seen(&self.head) > at {
                return true;
            }
            let alive = self.alive.load(Acquire);
            if alive & OWNER_DIED != 0 || self.closed.load(Acquire) == 1 {
                // Data that was committed before the death is still available.
                return seen(&self.head) > at;
            }
            let value =
                announce_sleep::<Model64>(&self.consumer_waiting, ON_FUTEX, &self.producer_wake);
            if seen(&self.head) == at && self.closed.load(Acquire) == 0 {
                self.wait(&self.producer_wake, value, alive);
            }
            wake_up(&self.consumer_waiting);
        }
    }

    /// Models a producer that sleeps until the tail leaves room for slot `at`.
    fn await_room(&self, at: u64) {
        while at - seen(&self.tail) == 2 {
            let value =
                announce_sleep::<Model64>(&self.producer_waiting, ON_FUTEX, &self.consumer_wake);
            if at - seen(&self.tail) == 2 {
                self.wait(&self.consumer_wake, value, 0);
            }
            wake_up(&self.producer_waiting);
        }
    }
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    // With more preemptions, two threads show nothing new, and the model takes very long.
    model_of(3, check);
}

fn model_of(switches: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(check);
}

#[test]
fn a_message_is_whole_when_its_head_is_seen() {
    model(|| {
        let shared = ModelWords::new();
        let mut sleeper = Sleeper::default();
        let producer = shared.clone();
        let writer = thread::spawn(move || producer.put(&mut Sleeper::default(), 0, 42));
        if seen(&shared.head) == 1 {
            assert_eq!(shared.take(&mut sleeper, 0), 42);
        }
        writer.join().expect("the producer");
    });
}

#[test]
fn a_sleeping_consumer_is_never_forgotten() {
    model(|| {
        let shared = ModelWords::new();
        let mut sleeper = Sleeper::default();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = Sleeper::default();
            producer.put(&mut sleeper, 0, 7);
            producer.put(&mut sleeper, 1, 8);
        });
        // loom would report a lost wake-up as a deadlock.
        for at in 0..2 {
            assert!(shared.await_data(at));
            assert_eq!(shared.take(&mut sleeper, at), 7 + at);
        }
        writer.join().expect("the producer");
    });
}

#[test]
fn a_slot_is_written_again_only_after_its_release() {
    model(|| {
        let shared = ModelWords::new();
        let mut sleeper = Sleeper::default();
        let mut filler = Sleeper::default();
        // The ring is full. The third message needs the slot of the first.
        shared.put(&mut filler, 0, 1);
        shared.put(&mut filler, 1, 2);
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = filler;
            producer.await_room(2);
            producer.put(&mut sleeper, 2, 3);
        });
        assert_eq!(shared.take(&mut sleeper, 0), 1);
        writer.join().expect("the producer");
        assert_eq!(shared.take(&mut sleeper, 1), 2);
        assert_eq!(shared.take(&mut sleeper, 2), 3);
    });
}

#[test]
fn a_death_wakes_the_sleeper_and_leaves_what_was_committed() {
    model(|| {
        let shared = ModelWords::new();
        let mut sleeper = Sleeper::default();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = Sleeper::default();
            producer.put(&mut sleeper, 0, 5);
            // The producer dies in the middle of the next message: it has written the payload, but has not moved the
            // head.
            // SAFETY: as above; the consumer never reads this slot.
            producer.slots[1].with_mut(|slot| unsafe { *slot = 99 });
            // When a thread dies, the kernel sets this bit in each word on that thread's robust list.
            producer.alive.store(OWNER_DIED, Release);
            producer.wake_sleepers();
        });
        assert!(shared.await_data(0), "the committed message was lost");
        assert_eq!(shared.take(&mut sleeper, 0), 5);
        assert!(!shared.await_data(1), "a message that was never committed");
        writer.join().expect("the producer");
    });
}

#[test]
fn closing_wakes_the_sleeper_and_follows_the_last_message() {
    model(|| {
        let shared = ModelWords::new();
        let mut sleeper = Sleeper::default();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = Sleeper::default();
            producer.put(&mut sleeper, 0, 5);
            let waiting = close::<Model64>(&producer.closed, &producer.consumer_waiting);
            if sleeper.due(waiting, &producer.producer_wake) == ON_FUTEX {
                producer.wake_sleepers();
            }
        });
        assert!(shared.await_data(0), "the committed message was lost");
        assert_eq!(shared.take(&mut sleeper, 0), 5);
        assert!(!shared.await_data(1), "a message that was never committed");
        writer.join().expect("the producer");
    });
}

#[test]
fn a_sleeper_on_either_of_two_cursors_is_never_forgotten() {
    model(|| {
        let shared = ModelWords::new();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = Sleeper::default();
            // SAFETY: loom reports every access that is not ordered with this one.
            producer.slots[0].with_mut(|slot| unsafe { *slot = 4 });
            producer.second.publish_quietly(1);
            producer.announce(&mut sleeper);
            producer.put(&mut sleeper, 1, 9);
        });
        shared.await_that(|| seen(&shared.second) == 1);
        // SAFETY: as above.
        assert_eq!(shared.slots[0].with(|slot| unsafe { *slot }), 4);
        shared.await_that(|| seen(&shared.head) == 2);
        writer.join().expect("the producer");
    });
}

#[test]
fn a_quiet_step_is_seen_with_the_next_loud_one() {
    model(|| {
        let shared = ModelWords::new();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            producer.second.publish_quietly(3);
            producer.put(&mut Sleeper::default(), 0, 5);
        });
        shared.await_that(|| seen(&shared.head) == 1);
        assert_eq!(seen(&shared.second), 3);
        writer.join().expect("the producer");
    });
}

#[test]
fn a_sleeper_on_a_quiet_step_is_woken_by_the_next_loud_one() {
    model(|| {
        let shared = ModelWords::new();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            producer.second.publish_quietly(3);
            producer.put(&mut Sleeper::default(), 0, 5);
        });
        shared.await_that(|| seen(&shared.second) == 3);
        shared.await_that(|| seen(&shared.head) == 1);
        writer.join().expect("the producer");
    });
}

#[test]
fn a_sleeper_on_a_word_that_both_sides_write_is_never_forgotten() {
    model(|| {
        let shared = ModelWords::new();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            producer.turn.store(1, Release);
            producer.announce(&mut Sleeper::default());
        });
        shared.await_that(|| shared.turn.compare_exchange(1, 2, AcqRel, Acquire).is_ok());
        assert_eq!(shared.turn.load(Relaxed), 2);
        writer.join().expect("the producer");
    });
}

mod holds;
