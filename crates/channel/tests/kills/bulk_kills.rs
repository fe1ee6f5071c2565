//! Kills one side of a bulk transfer with SIGKILL at a random instant, for each mechanism. The
//! survivor must get an error, the bytes reported as valid must be valid, and no resources may
//! remain. `THALWEG_KILLS` sets the number of kills. `THALWEG_HOLDS` sets the additional memory, in
//! bytes, of every second victim. A run prints `THALWEG_SEED`, with which it can be repeated.

use crate::peer;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use thalweg_channel::{
    Error, Link,
    bulk::{MECHANISMS, Receiver, Sender},
};
use thalweg_sys::process::ended_within;
use thalweg_testing::{Dice, from_env, open_files};

use peer::{Peer, Script, difference, fill};

/// Large enough that some victims are killed in the middle of a buffer.
const LEN: usize = 3 << 20;

/// Returns scripts for every mechanism that works in this environment: first with its default
/// tuning, then with its other tunings.
fn scripts() -> Vec<Script> {
    let mut scripts = Vec::new();
    for mechanism in MECHANISMS.iter().filter(|mechanism| mechanism.probe().is_ok()) {
        for (n, tuning) in mechanism.info().tunings().into_iter().enumerate() {
            let mechanism = Some(mechanism.info().name.to_owned());
            let script = Script { mechanism, tuning, buffers: vec![(LEN, 1)], ..Script::default() };
            scripts.push((n, script));
        }
    }
    scripts.sort_by_key(|(n, _)| (*n > 0, *n));
    scripts.into_iter().map(|(_, script)| script).collect()
}

/// Returns the names of shared memory files that this test or the peer left behind. There must be
/// none. Names with the id of an unrelated process belong to others.
fn litter(peer: u32) -> BTreeSet<String> {
    let ours = |name: &String| {
        let maker = name.split('-').find_map(|word| word.parse().ok());
        maker.is_none_or(|maker| [peer, std::process::id()].contains(&maker))
    };
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("thalweg") && ours(name)).collect()
}

/// Returns the existing System V segments: the id and the creator's process id.
fn segments() -> BTreeMap<u64, u32> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?.parse().ok()?, words.nth(2)?.parse().ok()?))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

/// Result of one kill.
struct Told {
    mechanism: String,
    sender_died: bool,
    /// `true` if the victim was idle, so that the survivor was asleep.
    quiet: bool,
    /// `true` if the victim had additional memory.
    held: bool,
    /// `true` if the survivor was already waiting for the victim at the kill.
    waited: bool,
    /// `true` if the survivor got the error before the kernel had freed all memory of the victim.
    early: bool,
    /// Time until the survivor got the error: since the kill, or since the survivor's call if that
    /// came later.
    after: Duration,
}

/// Start of the survivor's call that returned the error, and the time at which it returned.
type Asked = (Instant, Instant);

/// Kills one victim, and returns the result.
fn round(number: u64, dice: &mut Dice, scripts: &[Script], holds: usize) -> Told {
    let sender_dies = number.is_multiple_of(2);
    let quiet = number / 2 % 3 == 2;
    let holds = if number / 6 % 2 == 1 { holds } else { 0 };
    let script = &scripts[(number / 2) as usize % scripts.len()];
    let mut script =
        Script { sends: sender_dies, forever: !quiet, lingers: quiet, holds, ..script.clone() };
    if quiet && !sender_dies {
        // The other process opens a receiver, but does not receive any buffer.
        script.buffers.clear();
    }
    let before = segments();
    let (mut peer, link) = Peer::start(&script);
    let pid = peer.child.id();
    let process = thalweg_sys::process::watch(&peer.child).unwrap();
    let wait = Duration::from_micros(dice.below(30_000));
    let (has_met, began) = (AtomicBool::new(false), Instant::now());
    let (waited, early, after) = thread::scope(|scope| {
        let surviving = scope.spawn(|| {
            let survive = if sender_dies { receive_until_death } else { send_until_death };
            let asked = survive(link, &script, &has_met);
            (asked, ended_within(&process, Some(Duration::ZERO)) == Ok(false))
        });
        // Wait until the handshake is over. Before that, no memory is shared, and the survivor
        // notices a death only after the kernel has freed the victim's memory.
        while holds > 0 && !has_met.load(Ordering::Acquire) && began.elapsed() < peer::GUARD {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(wait);
        let killed = Instant::now();
        peer.kill();
        let ((asked, told), early) = surviving.join().unwrap();
        (asked <= killed, early, told.saturating_duration_since(killed.max(asked)))
    });
    assert_eq!(litter(pid), BTreeSet::new());
    // Process ids are reused, so ignore segments that already existed.
    let mut left = segments();
    left.retain(|id, maker| !before.contains_key(id) && [pid, std::process::id()].contains(maker));
    assert!(left.is_empty(), "{script:?}: segments left behind: {left:?}");
    let mechanism = script.mechanism.unwrap_or_default();
    Told { mechanism, sender_died: sender_dies, quiet, held: holds > 0, waited, early, after }
}

fn receive_until_death(link: Link, script: &Script, has_met: &AtomicBool) -> Asked {
    let opened = Instant::now();
    let mut receiver = match Receiver::over(link, &script.options()) {
        Ok(receiver) => receiver,
        Err(Error::PeerDied { delivered: 0, .. }) => return (opened, Instant::now()),
        Err(error) => panic!("{script:?}: {error}"),
    };
    has_met.store(true, Ordering::Release);
    let mut memory = vec![0xdd; LEN];
    for seed in 0_u64.. {
        let asked = Instant::now();
        let outcome = receiver.recv_into(&mut memory);
        let told = Instant::now();
        match outcome {
            Ok(len) => {
                assert_eq!(len, LEN);
                assert_eq!(difference(seed, &memory), None, "{script:?}: a torn buffer");
            }
            Err(Error::PeerDied { delivered, partial: 0 }) => {
                let part = &memory[..delivered as usize];
                assert_eq!(difference(seed, part), None, "{script:?}: {delivered} are not true");
                let again = receiver.recv_into(&mut memory);
                assert!(again.is_err(), "{script:?}: something came after the end");
                return (asked, told);
            }
            Err(error) => panic!("{script:?}: {error}"),
        }
    }
    unreachable!("the victim is killed")
}

fn send_until_death(link: Link, script: &Script, has_met: &AtomicBool) -> Asked {
    let opened = Instant::now();
    let mut sender = match Sender::over(link, script.options()) {
        Ok(sender) => sender,
        Err(Error::PeerDied { .. }) => return (opened, Instant::now()),
        Err(error) => panic!("{script:?}: {error}"),
    };
    has_met.store(true, Ordering::Release);
    let mut memory = vec![0; LEN];
    for seed in 0_u64.. {
        fill(seed, &mut memory);
        let asked = Instant::now();
        let outcome = sender.send_from(&memory);
        let told = Instant::now();
        match outcome {
            Ok(()) => {}
            Err(Error::PeerDied { .. }) => {
                assert!(sender.send_from(&memory).is_err());
                return (asked, told);
            }
            Err(error) => panic!("{script:?}: {error}"),
        }
    }
    unreachable!("the victim is killed")
}

#[test]
fn kills_tear_nothing_and_leave_nothing() {
    let _alone = thalweg_testing::alone();
    let (mut dice, scripts) = (Dice::new(module_path!()), scripts());
    let kills = from_env("THALWEG_KILLS", 8);
    let holds = from_env("THALWEG_HOLDS", 8 << 20) as usize;
    // Count the open files only after the first round, which starts a thread that lives as long as
    // this process.
    let mut told = vec![round(0, &mut dice, &scripts, holds)];
    let files = open_files();
    told.extend((1..kills).map(|number| round(number, &mut dice, &scripts, holds)));
    assert_eq!(open_files(), files);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("thalweg-bulk"), "{maps}");
    report(&told);
}

/// Prints the times. They are not checked, because they depend on the load of the machine.
fn report(told: &[Told]) {
    let line = |name: &str, of: &dyn Fn(&Told) -> bool| {
        let of: Vec<_> = told.iter().filter(|t| of(t)).collect();
        let mut after: Vec<_> = of.iter().map(|t| t.after).collect();
        after.sort();
        let early = of.iter().filter(|t| t.early).count();
        if let (Some(median), Some(longest)) = (after.get(after.len() / 2), after.last()) {
            let kills = after.len();
            eprintln!(
                "  {name}: {kills} kills, {early} told before the victim was gone; median {median:?}, longest {longest:?}"
            );
        }
    };
    eprintln!("{} kills of one side of a bulk transfer, 0 torn; told after", told.len());
    line("all", &|_| true);
    line("sender died, receiver slept", &|t| t.sender_died && t.quiet);
    line("sender died, under way", &|t| t.sender_died && !t.quiet);
    line("receiver died, sender slept", &|t| !t.sender_died && t.quiet);
    line("receiver died, under way", &|t| !t.sender_died && !t.quiet);
    for mechanism in told.iter().map(|t| t.mechanism.as_str()).collect::<BTreeSet<_>>() {
        line(mechanism, &|t| t.mechanism == mechanism && !(t.held && t.waited));
        let held = format!("{mechanism}, much memory, and was waited for");
        line(&held, &|t| t.mechanism == mechanism && t.held && t.waited);
    }
}
