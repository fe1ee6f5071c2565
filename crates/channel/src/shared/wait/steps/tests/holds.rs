//! Models a consumer whose held messages are given back by several threads. As in `ring/held.rs`, a thread publishes
//! the new tail while it holds the lock of `Holds`.

use super::*;
use crate::shared::holds::Holds;

/// The consumer's `Holds`, and its record of the producer's sleeps, under one lock.
struct ModelHolding(Mutex<(Holds, Sleeper)>);

impl ModelHolding {
    /// Returns the state after the consumer has received and held the messages of both slots.
    fn of_two() -> Arc<Self> {
        let mut holds = Holds::new(0);
        for at in 0..2 {
            holds.hold(at);
            assert_eq!(holds.pass(at + 1), None);
        }
        Arc::new(Self(Mutex::new((holds, Sleeper::default()))))
    }

    fn change(&self, shared: &ModelWords, change: impl FnOnce(&mut Holds) -> Option<u64>) {
        let mut book = self.0.lock().expect("no thread panicked");
        let (holds, sleeper) = &mut *book;
        if let Some(tail) = change(holds) {
            assert!(tail > shared.tail.load(Relaxed), "the tail went back");
            let waiting = publish(&shared.tail, tail, &shared.producer_waiting);
            if sleeper.due(waiting, &shared.consumer_wake) == ON_FUTEX {
                shared.wake_sleepers();
            }
        }
    }

    /// Reads the message in a slot for the last time, then gives it back.
    fn give_back(&self, shared: &ModelWords, at: u64) {
        // SAFETY: loom reports every access that is not ordered with this one.
        let value = shared.slots[at as usize].with(|slot| unsafe { *slot });
        assert_eq!(value, at + 1, "a message that is held was written over");
        self.change(shared, |holds| holds.give_back(at));
    }
}

/// Fills both slots. Then runs `meanwhile`, concurrently with a producer that needs both slots again.
fn full_and_held(meanwhile: impl Fn(&Arc<ModelWords>, &Arc<ModelHolding>) + Send + Sync + 'static) {
    // With one more preemption, a model of three threads would take a hundred times as long.
    model_of(2, move || {
        let shared = ModelWords::new();
        let mut filler = Sleeper::default();
        shared.put(&mut filler, 0, 1);
        shared.put(&mut filler, 1, 2);
        let holding = ModelHolding::of_two();
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            let mut sleeper = filler;
            for at in 2..4 {
                producer.await_room(at);
                producer.put(&mut sleeper, at, 100);
            }
        });
        meanwhile(&shared, &holding);
        // loom would report a lost wake-up as a deadlock.
        writer.join().expect("the producer");
        assert_eq!(seen(&shared.tail), 2);
    });
}

#[test]
fn two_threads_give_back_in_every_order() {
    full_and_held(|shared, holding| {
        let (theirs, book) = (shared.clone(), holding.clone());
        let other = thread::spawn(move || book.give_back(&theirs, 0));
        holding.give_back(shared, 1);
        other.join().expect("the other thread");
    });
}

#[test]
fn one_thread_gives_back_the_newer_first() {
    full_and_held(|shared, holding| {
        holding.give_back(shared, 1);
        assert_eq!(shared.tail.load(Relaxed), 0);
        holding.give_back(shared, 0);
    });
}

/// Gives back a held message on another thread, while the consumer releases the next message.
#[test]
fn a_release_beside_one_that_is_given_back() {
    model(|| {
        let shared = ModelWords::new();
        let mut filler = Sleeper::default();
        shared.put(&mut filler, 0, 1);
        shared.put(&mut filler, 1, 2);
        let mut holds = Holds::new(0);
        holds.hold(0);
        assert_eq!(holds.pass(1), None);
        let holding = Arc::new(ModelHolding(Mutex::new((holds, Sleeper::default()))));
        let producer = shared.clone();
        let writer = thread::spawn(move || {
            producer.await_room(2);
            producer.put(&mut filler, 2, 100);
        });
        let (theirs, book) = (shared.clone(), holding.clone());
        let other = thread::spawn(move || book.give_back(&theirs, 0));
        // SAFETY: loom reports every access that is not ordered with this one.
        assert_eq!(shared.slots[1].with(|slot| unsafe { *slot }), 2);
        holding.change(&shared, |holds| holds.pass(2));
        other.join().expect("the other thread");
        writer.join().expect("the producer");
        assert_eq!(seen(&shared.tail), 2);
    });
}
