//! Checks which events count as a peer's death: stopped processes, ending threads, forks, exec,
//! refused system calls. Also sends many messages while both ends sleep at random moments.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait, pair};
use thalweg_sys::Errno;
use thalweg_sys::fault::{Call, Effect, Rule, Script};
use thalweg_testing::{Dice, again, from_env, message};

const CHILD: &str = "THALWEG_LIVES_CHILD";

fn small(wait: Wait) -> Options {
    Options { capacity: 16384, wait, ..Options::default() }
}

fn in_a_while(millis: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(millis))
}

/// Main program of the other process: sends one message, then does what the test requests.
#[test]
fn other() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (what, place) = told.split_once(' ').unwrap();
    let link = Link::connect(&Address::at(PathBuf::from(place).join("ring"))).unwrap();
    let mut producer = Producer::open(link, &small(Wait::Block)).unwrap();
    producer.send(b"hello").unwrap();
    match what {
        "leave" => {}
        "exit" => std::process::exit(0),
        "exec" => {
            use std::os::unix::process::CommandExt;
            panic!("{}", std::process::Command::new("sleep").arg("60").exec());
        }
        _ => loop {
            std::thread::park();
        },
    }
}

fn start(what: &str) -> (std::process::Child, Consumer) {
    let place = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&Address::at(place.path().join("ring"))).unwrap();
    let child = again("lives::other", CHILD, &format!("{what} {}", place.path().display()));
    let link = listener.accept_until(in_a_while(60_000)).unwrap();
    let mut consumer = Consumer::open(link, &small(Wait::Block)).unwrap();
    assert_eq!(&*consumer.receive().unwrap(), b"hello");
    (child, consumer)
}

#[test]
fn a_stopped_process_is_not_dead() {
    use rustix::process::{Pid, Signal, kill_process};
    let (mut child, mut consumer) = start("stay");
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    assert_eq!(consumer.receive_until(in_a_while(100)).err(), Some(Error::Timeout));
    assert!(consumer.try_receive().unwrap().is_none());
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(consumer.receive_until(in_a_while(20)).err(), Some(Error::Timeout));
    child.kill().unwrap();
    assert_eq!(consumer.receive().err(), Some(Error::PeerDied { delivered: 1, partial: 0 }));
    child.wait().unwrap();
}

#[test]
fn leaving_is_a_goodbye_and_vanishing_is_a_death() {
    let (mut child, mut consumer) = start("leave");
    assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: 1 }));
    child.wait().unwrap();
    // These processes end without closing the channel: exit does not run the destructors of values
    // on the stack, and exec replaces the memory.
    for what in ["exit", "exec"] {
        let (mut child, mut consumer) = start(what);
        let error = consumer.receive().err();
        assert_eq!(error, Some(Error::PeerDied { delivered: 1, partial: 0 }), "{what}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_thread_that_opened_it_may_end() {
    let opening = std::thread::spawn(|| pair(&small(Wait::Block)).unwrap());
    let (mut producer, mut consumer) = opening.join().unwrap();
    assert_eq!(consumer.receive_until(in_a_while(20)).err(), Some(Error::Timeout));
    producer.send(b"still").unwrap();
    assert_eq!(&*consumer.receive().unwrap(), b"still");
}

#[test]
fn a_new_ring_after_a_death_has_new_memory_and_another_epoch() {
    let (mut child, consumer) = start("stay");
    let first = consumer.epoch();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(consumer);
    let (mut child, consumer) = start("stay");
    assert_ne!(consumer.epoch(), first);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_peer_of_a_pair_is_the_process_that_uses_the_other_end() {
    let (near, far) = Link::pair().unwrap();
    let us = std::process::id();
    // SAFETY: the child ends with _exit, and takes only locks of its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(near);
        let consumer = Consumer::open(far, &small(Wait::Block));
        let fine = consumer.is_ok_and(|mut consumer| {
            consumer.peer().pid == us
                && consumer.peer().pidfd.is_some()
                && consumer.receive().is_ok()
        });
        // SAFETY: _exit ends the child at once.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    drop(far);
    let mut producer = Producer::open(near, &small(Wait::Block)).unwrap();
    assert_eq!(producer.peer().pid, child.cast_unsigned());
    assert!(producer.peer().pidfd.is_some());
    producer.send(b"for the child").unwrap();
    let mut status = 0;
    // SAFETY: `status` is written by the kernel.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_forked_child_owns_nothing_and_disturbs_nothing() {
    let (mut producer, mut consumer) = pair(&small(Wait::Block)).unwrap();
    producer.send(b"before").unwrap();
    // SAFETY: the child ends with _exit, and takes only locks of its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let owner = std::os::unix::process::parent_id();
        let refused = producer.send(b"child").err() == Some(Error::Forked { owner })
            && producer.try_loan(1).err() == Some(Error::Forked { owner })
            && consumer.try_receive().err() == Some(Error::Forked { owner })
            && consumer.arm().err() == Some(Error::Forked { owner });
        drop(producer);
        drop(consumer);
        // The child can open a ring of its own, with its own thread for the robust list.
        let fresh = pair(&small(Wait::Block)).and_then(|(mut producer, mut consumer)| {
            producer.send(b"mine")?;
            Ok(&*consumer.receive()? == b"mine")
        });
        let fine = refused && fresh == Ok(true);
        // SAFETY: _exit ends the child at once.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: `status` is written by the kernel.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    producer.send(b"after").unwrap();
    assert_eq!(&*consumer.receive().unwrap(), b"before");
    assert_eq!(&*consumer.receive().unwrap(), b"after");
    assert_eq!(consumer.receive_until(in_a_while(10)).err(), Some(Error::Timeout));
}

#[test]
fn a_forked_child_gives_back_nothing_that_its_parent_holds() {
    let (mut producer, mut consumer) = pair(&small(Wait::Block)).unwrap();
    producer.send(b"held").unwrap();
    producer.send(b"next").unwrap();
    let held = consumer.receive().unwrap().hold();
    // SAFETY: the child ends with _exit, and takes no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fine = &*held == b"held" && consumer.held() == 0;
        drop(held);
        drop(consumer);
        // SAFETY: _exit ends the child at once.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: `status` is written by the kernel.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    drop(consumer.receive().unwrap());
    assert_eq!(consumer.held(), 1);
    assert_eq!(producer.drained_until(in_a_while(1)).err(), Some(Error::Timeout));
    drop(held);
    producer.drained_until(None).unwrap();
}

#[test]
fn without_futex_waitv_the_link_wakes_and_reports_a_death() {
    for errno in [Errno::NOSYS, Errno::PERM] {
        let rule = Rule::always(Call::FutexWaitv, Effect::Errno(errno));
        let run = Script::new(vec![rule]).run(|| {
            let (mut child, mut consumer) = start("stay");
            assert_eq!(consumer.receive_until(in_a_while(20)).err(), Some(Error::Timeout));
            child.kill().unwrap();
            assert_eq!(
                consumer.receive().err(),
                Some(Error::PeerDied { delivered: 1, partial: 0 })
            );
            child.wait().unwrap();
        });
        assert!(run.fired > 0);
    }
}

#[test]
fn without_memory_files_the_reason_is_reported() {
    for (call, name) in [
        (Call::MemfdCreate, "memfd_create"),
        (Call::Ftruncate, "ftruncate"),
        (Call::Fallocate, "fallocate"),
    ] {
        let rule = Rule::always(call, Effect::Errno(Errno::PERM));
        let refused = Script::new(vec![rule]).run(|| pair(&small(Wait::Block))).value.unwrap_err();
        assert_eq!(refused, Error::System { call: name, errno: Errno::PERM });
    }
}

#[test]
fn a_signal_does_not_end_the_allocation_of_memory() {
    let rule = Rule::once(Call::Fallocate, 1, Effect::Errno(Errno::INTR));
    let run = Script::new(vec![rule]).run(|| pair(&small(Wait::Block)).map(drop));
    assert_eq!((run.value, run.fired), (Ok(()), 1));
}

extern "C" fn handler(_: libc::c_int) {}

/// A signal handler without SA_RESTART runs during a wait. The wait must not end early, and its
/// message must not be lost.
#[test]
fn a_handler_that_runs_during_a_wait_does_not_end_it() {
    // SAFETY: A `sigaction` in which all bytes are zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // SAFETY: the action is valid, and the handler does nothing.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let (sent, threads) = std::sync::mpsc::channel();
    let (timed_out, timeouts) = std::sync::mpsc::channel();
    let (mut producer, mut consumer) = pair(&small(Wait::Block)).unwrap();
    let waiting = std::thread::spawn(move || {
        // SAFETY: the call only returns this thread's own id.
        sent.send(unsafe { libc::pthread_self() }).unwrap();
        let begin = Instant::now();
        assert_eq!(consumer.receive_until(in_a_while(200)).err(), Some(Error::Timeout));
        assert!(begin.elapsed() >= Duration::from_millis(200));
        timed_out.send(()).unwrap();
        consumer.receive().unwrap().to_vec()
    });
    let thread = threads.recv().unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: the thread lives until it is joined.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    }
    timeouts.recv().unwrap();
    producer.send(b"after the signals").unwrap();
    assert_eq!(waiting.join().unwrap(), b"after the signals");
}

/// Sends `messages` messages of all sizes, while both sides sleep at random moments.
fn sequence(messages: u64, wait: Wait) {
    let mut dice = Dice::new(module_path!());
    let seeds = [dice.below(1 << 30), dice.below(1 << 30)];
    let (mut producer, mut consumer) = pair(&small(wait)).unwrap();
    let pause = |dice: &mut Dice| {
        if dice.below(20_000) == 0 {
            std::thread::sleep(Duration::from_micros(dice.below(300)));
        }
    };
    // Build the messages only once, because this test is about their order and about wake-ups.
    let made: Vec<Vec<u8>> = (0..997)
        .map(|seq| {
            let mut bytes = Vec::new();
            message(seq, &mut bytes);
            bytes
        })
        .collect();
    std::thread::scope(|scope| {
        let made = &made;
        scope.spawn(move || {
            let mut dice = Dice::seeded(seeds[0]);
            for seq in 0..messages {
                let mut loan = producer.loan(made[(seq % 997) as usize].len() + 8).unwrap();
                loan[..8].copy_from_slice(&seq.to_le_bytes());
                loan[8..].copy_from_slice(&made[(seq % 997) as usize]);
                loan.commit().unwrap();
                pause(&mut dice);
            }
        });
        let mut dice = Dice::seeded(seeds[1]);
        for seq in 0..messages {
            let sample = consumer.receive().unwrap();
            assert!(sample[..8] == seq.to_le_bytes() && sample[8..] == made[(seq % 997) as usize]);
            drop(sample);
            pause(&mut dice);
        }
        assert_eq!(consumer.receive().err(), Some(Error::Closed { delivered: messages }));
    });
}

/// Both ends run on one processor: an end that waits must let the other run.
#[test]
fn one_processor_is_enough() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let pinned = std::thread::spawn(|| {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        // The mask applies to this thread and to all threads that it starts.
        sched_setaffinity(None, &one).unwrap();
        for (wait, messages) in [(Wait::Block, 20_000), (Wait::HYBRID, 20_000), (Wait::Spin, 500)] {
            sequence(messages, wait);
        }
    });
    pinned.join().unwrap();
}

#[test]
fn a_long_sequence_arrives_in_order() {
    let messages = from_env("THALWEG_MESSAGES", 100_000);
    sequence(messages / 2, Wait::HYBRID);
    sequence(messages / 2, Wait::Block);
}
