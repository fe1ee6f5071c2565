//! Kills the process at one end of a ring at a random instant. The other end must receive every
//! committed message, and then report the death. `THALWEG_KILLS` sets the number of kills.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait};
use thalweg_sys::fault::{Call, Effect, Rule, Script};
use thalweg_sys::{Errno, io};
use thalweg_testing::{Dice, again, from_env, message, open_files};

const CHILD: &str = "THALWEG_KILL_CHILD";
const CAPACITY: u64 = 16384;
/// A process that runs longer than this counts as hanging. It is no requirement of speed.
const GUARD: Duration = Duration::from_secs(120);

fn options(wait: Wait, round: u64) -> Options {
    let (trusted, checksums) = (round & 1 == 0, round & 2 == 0);
    Options { capacity: CAPACITY, wait, trusted, checksums }
}

/// A number in a file, which outlives the process that wrote it.
struct Record(File);

impl Record {
    fn at(place: &Path) -> Self {
        let mut how = File::options();
        how.create(true).truncate(false).read(true).write(true);
        Self(how.open(place.join("record")).unwrap())
    }

    fn write(&self, count: u64) {
        assert_eq!(io::pwrite(&self.0, &count.to_le_bytes(), 0), Ok(8));
    }

    fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        assert_eq!(io::pread(&self.0, &mut bytes, 0), Ok(8));
        u64::from_le_bytes(bytes)
    }
}

/// Main program of the killed process. It is a test so that this binary can start itself again.
#[test]
fn victim() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut told = told.splitn(3, ' ');
    let (role, round) = (told.next().unwrap(), told.next().unwrap().parse::<u64>().unwrap());
    let place = PathBuf::from(told.next().unwrap());
    let record = Record::at(&place);
    let link = Link::connect(&Address::at(place.join("ring"))).unwrap();
    let options = options(Wait::HYBRID, round);
    // Open the ring in a thread that ends at once. This shows that the liveness word belongs to the
    // process and not to that thread.
    if role == "producer" {
        let opening = std::thread::spawn(move || Producer::open(link, &options).unwrap());
        produce(opening.join().unwrap(), &record, &mut Dice::seeded(round + 77));
    } else {
        let opening = std::thread::spawn(move || Consumer::open(link, &options).unwrap());
        consume(opening.join().unwrap(), &record, &mut Dice::seeded(round + 77));
    }
}

fn produce(mut producer: Producer, record: &Record, dice: &mut Dice) {
    let mut bytes = Vec::new();
    for seq in 0.. {
        message(seq, &mut bytes);
        let mut batch = producer.batch();
        let room = if seq % 5 == 0 { batch.loan(bytes.len()).unwrap() } else { None };
        if let Some(room) = room {
            room.copy_from_slice(&bytes);
            batch.commit().unwrap();
        } else {
            producer.send(&bytes).unwrap();
        }
        record.write(seq + 1);
        pause(dice);
    }
}

fn consume(mut consumer: Consumer, record: &Record, dice: &mut Dice) {
    let mut expected = Vec::new();
    for seq in 0.. {
        message(seq, &mut expected);
        assert!(*consumer.receive().unwrap() == expected[..], "message {seq} is torn");
        record.write(seq + 1);
        pause(dice);
    }
}

/// Sometimes pauses long enough for the other side to fall asleep.
fn pause(dice: &mut Dice) {
    match dice.below(40) {
        0 => std::thread::sleep(Duration::from_micros(1500)),
        1 => std::thread::sleep(Duration::from_micros(20)),
        _ => {}
    }
}

/// Result of one round.
struct Outcome {
    /// `true` if the process was killed before the ring was open.
    early: bool,
    delivered: u64,
    /// `true` if the survivor sleeps while it waits.
    sleeps: bool,
    /// Time from just before the kill until the survivor reported it.
    told_after: Duration,
}

fn round(number: u64, dice: &mut Dice, place: &Path) -> Outcome {
    let record = Record::at(place);
    record.write(0);
    let victim_produces = number.is_multiple_of(2);
    let role = if victim_produces { "producer" } else { "consumer" };
    let listener = Listener::bind(&Address::at(place.join("ring"))).unwrap();
    let mut victim = again("kills::victim", CHILD, &format!("{role} {number} {}", place.display()));
    let link = listener.accept_until(Some(Instant::now() + GUARD)).unwrap();
    let wait = [Wait::Block, Wait::HYBRID, Wait::Spin][(number / 2 % 3) as usize];
    // Some processes are killed during the handshake. The others are killed only after the first
    // message, so that this also happens on a slow machine.
    let in_handshake = number > 0 && dice.below(8) == 0;
    let delay = Duration::from_micros(dice.below(if in_handshake { 3000 } else { 9000 }));
    let pid = rustix::process::Pid::from_raw(victim.id() as i32).unwrap();
    let seen = Record::at(place);
    let killer = std::thread::spawn(move || {
        let began = Instant::now();
        while !in_handshake && seen.read() == 0 && began.elapsed() < GUARD {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(delay);
        let at = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        at
    });
    let options = options(wait, number);
    // In every fourth round futex_waitv fails, as on an older kernel or with a seccomp filter.
    let rules = match number / 2 % 4 {
        3 => vec![Rule::always(Call::FutexWaitv, Effect::Errno(Errno::NOSYS))],
        _ => Vec::new(),
    };
    let sleeps = wait != Wait::Spin;
    let mut buffer = Vec::new();
    let (error, delivered) = Script::new(rules)
        .run(|| {
            if victim_produces { drain(link, &options, &mut buffer) } else { fill(link, &options) }
        })
        .value;
    let told = Instant::now();
    let told_after = told.saturating_duration_since(killer.join().unwrap());
    let status = victim.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "round {number}: the victim failed by itself: {status}");
    let recorded = record.read();
    let Some(delivered) = delivered else {
        assert_eq!(recorded, 0, "round {number}: {error:?}");
        return Outcome { early: true, delivered: 0, sleeps, told_after };
    };
    assert_eq!(error, Error::PeerDied { delivered, partial: 0 }, "round {number}");
    // The victim may have died between a commit or release and the recording of it.
    assert!(
        (recorded..=recorded + 1).contains(&delivered),
        "round {number}, {role} killed after {delay:?}: {recorded} recorded, {delivered} delivered"
    );
    Outcome { early: false, delivered, sleeps, told_after }
}

/// Receives until an error ends this. Returns the error, and the number of messages; `None` if the
/// ring never opened.
fn drain(link: Link, options: &Options, expected: &mut Vec<u8>) -> (Error, Option<u64>) {
    let mut consumer = match Consumer::open(link, options) {
        Ok(consumer) => consumer,
        Err(error) => return (early(error), None),
    };
    for seq in 0.. {
        message(seq, expected);
        let error = match consumer.receive() {
            Ok(sample) => {
                assert!(*sample == expected[..], "message {seq} is torn");
                continue;
            }
            Err(error) => error,
        };
        assert_eq!(consumer.received(), seq);
        return (error, Some(seq));
    }
    unreachable!("the victim is killed")
}

/// Sends until an error ends this. Returns the error, and the number of messages that the victim
/// released; `None` if the ring never opened.
fn fill(link: Link, options: &Options) -> (Error, Option<u64>) {
    let mut producer = match Producer::open(link, options) {
        Ok(producer) => producer,
        Err(error) => return (early(error), None),
    };
    let mut buffer = Vec::new();
    for seq in 0.. {
        message(seq, &mut buffer);
        if let Err(error) = producer.send(&buffer) {
            let Error::PeerDied { delivered, .. } = error else { panic!("{error}") };
            return (error, Some(delivered));
        }
    }
    unreachable!("the victim is killed")
}

fn early(error: Error) -> Error {
    assert!(matches!(error, Error::PeerDied { .. } | Error::Closed { .. }), "{error:?}");
    error
}

#[test]
fn kills_tear_nothing_lose_nothing_and_leave_nothing() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let _alone = thalweg_testing::alone();
    let kills = from_env("THALWEG_KILLS", 12);
    let place = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(module_path!());
    // Count the open files only after the first round, which starts a thread that lives as long as
    // this process.
    let mut outcomes = vec![round(0, &mut dice, place.path())];
    let files = open_files();
    for number in 1..kills {
        outcomes.push(round(number, &mut dice, place.path()));
    }
    assert_eq!(open_files(), files);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(place.path().to_str().unwrap()), "{sockets}");
    assert_eq!(thalweg_testing::names(place.path()), ["record"]);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("memfd:thalweg-ring"), "{maps}");

    let early = outcomes.iter().filter(|outcome| outcome.early).count();
    let messages: u64 = outcomes.iter().map(|outcome| outcome.delivered).sum();
    let told = |sleeps: bool| {
        let of = outcomes.iter().filter(|outcome| outcome.sleeps == sleeps);
        let mut told: Vec<_> = of.map(|outcome| outcome.told_after).collect();
        told.sort();
        let median = told.get(told.len() / 2).copied().unwrap_or_default();
        (median, told.last().copied().unwrap_or_default())
    };
    // Print the times. They are not checked, because they depend on the load of the machine.
    eprintln!(
        "{kills} kills, {early} of them in the handshake; {messages} messages, 0 torn, 0 lost; \
         told after (median, longest): sleepers {:?}, spinners {:?}",
        told(true),
        told(false)
    );
    assert!(messages > 0 && early < outcomes.len());
}
