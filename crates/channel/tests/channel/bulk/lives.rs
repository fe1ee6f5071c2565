//! Checks which events count as a peer's death. Also runs transfers with few resources: one
//! processor, few descriptors, little memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use thalweg_channel::{
    Error, Link,
    bulk::{Options, Receiver, Sender},
};
use thalweg_core::Tuning;

use super::conformance::working;
use super::peer::{Peer, Script, difference, fill};
use thalweg_testing::skip;

const LEN: usize = 3 << 20;

/// A stopped process is not dead: the other side waits for it, and no data is lost.
#[test]
fn a_stopped_sender_is_waited_for() {
    use rustix::process::{Pid, Signal, kill_process};
    for mechanism in working() {
        let script = Script {
            sends: true,
            mechanism: Some(mechanism.info().name.to_owned()),
            tuning: Tuning::default(),
            buffers: vec![(LEN, 0); 6],
            ..Script::default()
        };
        let (peer, link) = Peer::start(&script);
        let pid = Pid::from_child(&peer.child);
        let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
        let mut memory = vec![0; LEN];
        for seed in 0..6 {
            if seed == 2 {
                kill_process(pid, Signal::STOP).unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(40));
                        kill_process(pid, Signal::CONT).unwrap();
                    });
                    receiver.recv_into(&mut memory).expect("a buffer");
                });
            } else {
                receiver.recv_into(&mut memory).expect("a buffer");
            }
            assert_eq!(difference(seed, &memory), None, "{}: buffer {seed}", mechanism.info().name);
        }
        peer.finish();
    }
}

fn ends() -> (Sender, Receiver) {
    let (near, far) = Link::pair().unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| Sender::over(near, Options::default()).expect("a mechanism"));
        let receiver = Receiver::over(far, &Options::default()).expect("a mechanism");
        (opening.join().unwrap(), receiver)
    })
}

#[track_caller]
fn expect_whole(sender: &mut Sender, receiver: &mut Receiver) {
    let mut memory = vec![0; 100_000];
    fill(7, &mut memory);
    thread::scope(|scope| {
        scope.spawn(|| sender.send_from(&memory).expect("a transfer"));
        let mut got = vec![0; memory.len()];
        assert_eq!(receiver.recv_into(&mut got).expect("a buffer"), got.len());
        assert_eq!(difference(7, &got), None);
    });
}

#[test]
fn the_threads_that_opened_the_ends_may_end() {
    let (mut sender, mut receiver) = thread::spawn(ends).join().unwrap();
    thread::sleep(Duration::from_millis(20));
    expect_whole(&mut sender, &mut receiver);
}

/// A child of the dead process keeps its pipes and sockets open, so the other side sees no EOF.
#[test]
fn a_death_is_noticed_although_a_child_keeps_the_ends_open() {
    for (mechanism, sends) in
        working().into_iter().flat_map(|mechanism| [(mechanism, true), (mechanism, false)])
    {
        let name = mechanism.info().name;
        let script = Script {
            sends,
            mechanism: Some(name.to_owned()),
            // The other process opens a receiver, but does not receive any buffer.
            buffers: if sends { vec![(LEN, 0)] } else { Vec::new() },
            lingers: true,
            forks: true,
            ..Script::default()
        };
        let (mut peer, link) = Peer::start(&script);
        if link.peer().pidfd.is_none() {
            return skip("a_death_is_noticed_although_a_child_keeps_the_ends_open", "no pidfd");
        }
        let died = if sends {
            let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
            assert_eq!(receiver.next_len(), Ok(Some(LEN as u64)), "{name}");
            peer.kill();
            let mut memory = vec![0; LEN];
            let outcome = receiver.recv_into(&mut memory);
            if let Err(Error::PeerDied { delivered, .. }) = outcome {
                assert_eq!(difference(0, &memory[..delivered as usize]), None, "{name}");
            } else if outcome.is_ok() {
                // The whole buffer was already in the pipe before the death.
                assert_eq!(difference(0, &memory), None, "{name}");
            }
            outcome.map(drop).and_then(|()| receiver.next_len().map(drop))
        } else {
            let mut sender = Sender::over(link, script.options()).expect("a mechanism");
            thread::scope(|scope| {
                let sending = scope.spawn(|| sender.send_from(&vec![1; LEN]));
                peer.await_fork();
                thread::sleep(Duration::from_millis(20));
                peer.kill();
                sending.join().unwrap()
            })
        };
        assert!(matches!(died, Err(Error::PeerDied { .. })), "{name} {sends}: {died:?}");
        assert!(peer.child_waits(), "{name} {sends}: only when the child had gone");
    }
}

/// Dropping an end wakes the other end if it sleeps, although no process dies.
#[test]
fn an_end_that_is_dropped_is_a_goodbye_or_a_death() {
    let (sender, mut receiver) = ends();
    let waiting = thread::spawn(move || receiver.next_len());
    thread::sleep(Duration::from_millis(20));
    drop(sender);
    assert_eq!(waiting.join().unwrap(), Ok(None));
    let (mut sender, receiver) = ends();
    let waiting = thread::spawn(move || sender.send_from(&vec![1; LEN]));
    thread::sleep(Duration::from_millis(20));
    drop(receiver);
    let died = waiting.join().unwrap();
    assert!(matches!(died, Err(Error::PeerDied { .. })), "{died:?}");
}

/// A sender that gives up in the middle of a buffer reports this at once, although its end of the
/// pipe stays open. The receiver must not take later writes to the sender's memory for data.
#[test]
fn a_sender_that_gave_up_is_not_believed() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    for mechanism in working() {
        let name = mechanism.info().name;
        ENOUGH.store(false, Ordering::Relaxed);
        let (near, far) = Link::pair().unwrap();
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let stop: Option<fn() -> bool> = Some(|| ENOUGH.load(Ordering::Relaxed));
                let options = Options { stop, ..Options::only(name, Tuning::default()) };
                let mut sender = Sender::over(near, options).expect("a mechanism");
                let mut memory = vec![0; LEN];
                fill(7, &mut memory);
                let outcome = sender.send_from(&memory);
                memory.fill(0xee);
                (sender, memory, outcome)
            });
            let options = Options::only(name, Tuning::default());
            let mut receiver = Receiver::over(far, &options).expect("a mechanism");
            assert_eq!(receiver.next_len(), Ok(Some(LEN as u64)));
            ENOUGH.store(true, Ordering::Relaxed);
            let (_sender, _memory, outcome) = sending.join().unwrap();
            assert!(matches!(outcome, Err(Error::System { .. })), "{name}: {outcome:?}");
            let mut got = vec![0; LEN];
            let (told, true_bytes) = match receiver.recv_into(&mut got) {
                Ok(len) => (None, len),
                Err(Error::PeerDied { delivered, .. }) => (Some(delivered), delivered as usize),
                Err(error) => panic!("{name}: {error}"),
            };
            assert_eq!(difference(7, &got[..true_bytes]), None, "{name}: {told:?}");
        });
    }
}

fn soon() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(30))
}

#[test]
fn a_deadline_before_a_buffer_has_begun_loses_nothing() {
    let (mut sender, mut receiver) = ends();
    let mut few = [0; 8];
    for _ in 0..2 {
        assert_eq!(receiver.next_len_until(soon()), Err(Error::Timeout));
        assert_eq!(receiver.recv_into_until(&mut few, soon()), Err(Error::Timeout));
        assert_eq!(receiver.recv_new_until(soon()).map(drop), Err(Error::Timeout));
    }
    expect_whole(&mut sender, &mut receiver);
    for sends in [true, false] {
        let (near, _far) = Link::pair().unwrap();
        let alone = if sends {
            Sender::over_until(near, Options::default(), soon()).map(drop)
        } else {
            Receiver::over_until(near, &Options::default(), soon()).map(drop)
        };
        assert_eq!(alone, Err(Error::Timeout));
    }
}

#[test]
fn a_buffer_that_times_out_is_given_up_and_the_receiver_gets_an_error() {
    for mechanism in working() {
        let name = mechanism.info().name;
        let options = Options::only(name, Tuning::default());
        let (near, far) = Link::pair().unwrap();
        let mut receiver = thread::scope(|scope| {
            let opening = scope.spawn(|| Receiver::over(far, &options).expect("a mechanism"));
            let mut sender = Sender::over(near, options.clone()).expect("a mechanism");
            let receiver = opening.join().unwrap();
            let bytes = vec![7; LEN];
            assert_eq!(sender.send_from_until(&bytes, soon()), Err(Error::Timeout), "{name}");
            assert_eq!(sender.send_from(&bytes), Err(Error::Closed { delivered: 0 }), "{name}");
            receiver
        });
        let mut memory = vec![0; LEN];
        // Some mechanisms had already delivered the whole buffer.
        let outcome = receiver.recv_into(&mut memory).map(|len| assert_eq!(len, LEN));
        let told = outcome.and_then(|()| receiver.next_len().map(drop));
        assert!(matches!(told, Err(Error::PeerDied { .. })), "{name}: {told:?}");
    }
}

/// A stopped process is not dead, but a receiver with a deadline does not wait longer for it.
#[test]
fn a_stopped_sender_need_not_be_waited_for() {
    use rustix::process::{Pid, Signal, kill_process};
    // Skip mechanisms with trust: their sender may be writing to our memory, so the receiver would
    // have to wait.
    for mechanism in working().into_iter().filter(|mechanism| !mechanism.info().nature.wants_trust)
    {
        let name = mechanism.info().name;
        let script = Script {
            sends: true,
            mechanism: Some(name.to_owned()),
            buffers: vec![(LEN, 0)],
            lingers: true,
            ..Script::default()
        };
        let (peer, link) = Peer::start(&script);
        let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
        assert_eq!(receiver.next_len(), Ok(Some(LEN as u64)), "{name}");
        kill_process(Pid::from_child(&peer.child), Signal::STOP).unwrap();
        let mut memory = vec![0; LEN];
        match receiver.recv_into_until(&mut memory, soon()) {
            // The whole buffer had already arrived.
            Ok(len) => assert_eq!((len, difference(0, &memory)), (LEN, None), "{name}"),
            Err(Error::Timeout) => {
                assert_eq!(receiver.next_len(), Err(Error::Closed { delivered: 0 }), "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn a_forked_child_owns_nothing_and_disturbs_nothing() {
    let (mut sender, mut receiver) = ends();
    let mut few = [0; 8];
    // SAFETY: the child ends with _exit, and takes only locks of its own.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let owner = std::os::unix::process::parent_id();
        let refused = sender.send_from(&[1]) == Err(Error::Forked { owner })
            && receiver.next_len() == Err(Error::Forked { owner })
            && receiver.recv_into(&mut few) == Err(Error::Forked { owner });
        // Dropping the child's copies must not close the ends of the parent.
        drop(sender);
        drop(receiver);
        // SAFETY: _exit ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` is written by the kernel.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    expect_whole(&mut sender, &mut receiver);
    drop(sender);
    assert_eq!(receiver.next_len(), Ok(None));
}

/// A forked child has copies of its parent's memory at the same addresses, and `SO_PEERCRED` of an
/// inherited end names the parent. The receiver must recognise the child by its messages, and read
/// the memory of the child and not of the parent.
#[test]
fn a_forked_peer_is_not_taken_for_its_parent() {
    // Make this process set its token first, so that the child inherits it.
    drop(ends());
    let mut bytes = vec![1; 100_000];
    for mechanism in working().into_iter().filter(|mechanism| mechanism.info().nature.wants_trust) {
        let options = Options::only(mechanism.info().name, Tuning::default());
        let (near, far) = Link::pair().unwrap();
        // SAFETY: the child ends with _exit, and takes only locks of its own.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(near);
            bytes.fill(2);
            let sent = Sender::over(far, options).and_then(|mut sender| sender.send_from(&bytes));
            // SAFETY: _exit ends the child at once.
            unsafe { libc::_exit(i32::from(sent.is_err())) };
        }
        drop(far);
        let mut into = vec![0; bytes.len()];
        let met =
            Receiver::over(near, &options).and_then(|mut receiver| receiver.recv_into(&mut into));
        assert_eq!(met, Ok(bytes.len()), "{}", mechanism.info().name);
        assert!(into.iter().all(|byte| *byte == 2), "{}", mechanism.info().name);
        let mut status = 0;
        // SAFETY: `status` is written by the kernel.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}

/// Both ends run on one processor: an end that waits must let the other run.
#[test]
fn one_processor_is_enough_for_every_mechanism() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let pinned = thread::spawn(|| {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        // The mask applies to this thread and to all threads and processes that it starts.
        sched_setaffinity(None, &one).unwrap();
        for mechanism in working() {
            let name = mechanism.info().name;
            let script = Script {
                sends: true,
                mechanism: Some(name.to_owned()),
                buffers: vec![(LEN, 0), (1, 0), (70_001, 3)],
                ..Script::default()
            };
            let (peer, link) = Peer::start(&script);
            let mut receiver = Receiver::over(link, &script.options()).expect("a mechanism");
            let mut memory = vec![0; LEN];
            for (seed, (len, _)) in (0..).zip(&script.buffers) {
                assert_eq!(receiver.recv_into(&mut memory), Ok(*len), "{name}");
                assert_eq!(difference(seed, &memory[..*len]), None, "{name}");
            }
            peer.finish();
        }
    });
    pinned.join().unwrap();
}

/// Limits the free descriptors. Either the right bytes arrive, or both sides get an error.
#[test]
fn too_few_descriptors_are_an_error_and_a_few_are_enough() {
    let mut whole = 0;
    for sends in [true, false] {
        for files in 0..12 {
            let script = Script {
                sends,
                files: Some(files),
                buffers: vec![(100_000, 1); 2],
                ..Script::default()
            };
            let (peer, link) = Peer::start(&script);
            let outcome = if sends {
                Receiver::over(link, &script.options()).and_then(|mut receiver| {
                    let mut memory = vec![0; 100_000];
                    for seed in 0..2 {
                        receiver.recv_into(&mut memory)?;
                        assert_eq!(difference(seed, &memory), None, "{script:?}");
                    }
                    Ok(())
                })
            } else {
                Sender::over(link, script.options()).and_then(|mut sender| {
                    let mut memory = vec![0; 100_000];
                    for seed in 0..2 {
                        fill(seed, &mut memory);
                        sender.send_from(&memory)?;
                    }
                    Ok(())
                })
            };
            match outcome {
                Ok(()) => {
                    peer.finish();
                    whole += 1;
                }
                Err(error) => {
                    let told = matches!(error, Error::PeerDied { .. } | Error::NotPermitted { .. });
                    assert!(told, "{script:?}: {error}");
                    assert!(files < 10, "{script:?}: {error}");
                }
            }
        }
    }
    assert!(whole >= 4, "only {whole} were enough");
}

/// Limits the free memory, from almost nothing upwards. If the first mechanism needs too much,
/// another one replaces it and the reason is recorded. Otherwise both sides get an error.
#[test]
fn too_little_memory_for_one_mechanism_may_be_enough_for_another() {
    let mut stepped = 0;
    for memory in [256, 768, 1024, 1536, 2048, 3072, 4096, 64 << 10].map(|kib| kib << 10) {
        let buffers = vec![(100_000, 1); 2];
        let script = Script { memory: Some(memory), buffers, ..Script::default() };
        let (peer, link) = Peer::start(&script);
        let sent = Sender::over(link, script.options()).and_then(|mut sender| {
            let mut bytes = vec![0; 100_000];
            for seed in 0..2 {
                fill(seed, &mut bytes);
                sender.send_from(&bytes)?;
            }
            Ok(sender)
        });
        match sent {
            Ok(sender) => {
                let no_memory = |reason: &str| reason.contains("ENOMEM");
                stepped += usize::from(sender.skipped().iter().any(|s| no_memory(&s.reason)));
                drop(sender);
                peer.finish();
            }
            Err(error) => {
                let told = matches!(error, Error::PeerDied { .. } | Error::NotPermitted { .. });
                assert!(told && memory < 64 << 20, "{memory} bytes more: {error}");
            }
        }
    }
    assert!(stepped > 0, "no limit led to another mechanism");
}

/// A memory control group, removed when dropped. `Err` is the reason why none can be created.
struct Group(std::path::PathBuf);

impl Group {
    fn of(bytes: u64) -> Result<Self, String> {
        let told = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let below = |line: &str| {
            let path = line.split(':').nth(2)?.trim_start_matches('/');
            let one = line.split(':').nth(1)? == "memory";
            let mount = if one { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" };
            Some((std::path::Path::new(mount).join(path), one))
        };
        let memory = |line: &&str| line.contains(":memory:") || line.starts_with("0::");
        let mut lines: Vec<&str> = told.lines().filter(memory).collect();
        lines.sort_by_key(|line| line.starts_with("0::"));
        let (parent, one) = lines.first().copied().and_then(below).ok_or("no memory groups")?;
        let group = Self(parent.join(format!("thalweg-test-{}", std::process::id())));
        let failed = |what: &str, e: &std::io::Error| format!("{}: {what}: {e}", group.0.display());
        std::fs::create_dir(&group.0).map_err(|e| failed("mkdir", &e))?;
        let name = if one { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(group.0.join(name), bytes.to_string()).map_err(|e| failed(name, &e))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

/// Runs the receiver in a group that allows 48 MiB. Any number of small buffers arrive. A buffer
/// that does not fit is an error, and the kernel does not kill the receiver.
#[test]
fn a_control_group_limits_what_is_taken() {
    let test = "a_control_group_limits_what_is_taken";
    let group = match Group::of(48 << 20) {
        Ok(group) => group,
        Err(why) => return skip(test, &why),
    };
    let small = vec![(LEN, 0); 10];
    for buffers in [small, vec![(64 << 20, 0)]] {
        let len = buffers[0].0;
        let group = Some(group.0.clone());
        let script = Script { fresh: true, group, buffers: buffers.clone(), ..Script::default() };
        let (mut peer, link) = Peer::start(&script);
        let sent = Sender::over(link, script.options()).and_then(|mut sender| {
            let mut bytes = vec![0; len];
            for seed in 0..buffers.len() as u64 {
                fill(seed, &mut bytes);
                sender.send_from(&bytes)?;
            }
            Ok(())
        });
        let ended = peer.end();
        if len == LEN {
            assert_eq!((sent, ended.success()), (Ok(()), true));
        } else {
            assert!(matches!(sent, Err(Error::PeerDied { .. })), "{sent:?}");
            // The receiver exited: a process that the kernel killed would have no exit code.
            assert!(ended.code().is_some(), "{ended}");
        }
    }
}
