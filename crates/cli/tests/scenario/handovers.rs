//! `thalweg send` and `thalweg receive`: the received file is complete or absent, even if a process dies or a system
//! call is refused.

use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use thalweg_channel::{Address, Link, bulk::MECHANISMS};

use crate::support::{
    Running, Scratch, bytes,
    deny::{Call, FAST, SHARED, run_without},
    names,
    run::{Ran, ended_by},
    scratch::unfinished,
    skip, thalweg,
};
use thalweg_testing::{Dice, from_env};

pub const LEN: u64 = (20 << 20) + 17;

/// The files of one test: a source, a socket and a destination.
pub struct Place {
    pub scratch: Scratch,
    pub source: PathBuf,
    pub socket: PathBuf,
    pub copy: PathBuf,
}

impl Place {
    pub fn new(len: u64) -> Self {
        // The path of a socket must be short, and the path of the build output may be too long.
        let scratch = Scratch::public();
        let at = |name: &str| scratch.join(name);
        let (source, socket, copy) = (at("source"), at("socket"), at("copy"));
        bytes::write(&source, 1, len);
        Self { scratch, source, socket, copy }
    }

    pub fn send(&self, options: &[&str]) -> Command {
        let mut command = thalweg();
        command.arg("send").arg("--to").arg(&self.socket).args(options).arg(&self.source);
        command
    }

    pub fn receive(&self, options: &[&str]) -> Command {
        let mut command = thalweg();
        command.arg("receive").arg("--from").arg(&self.socket).args(options).arg(&self.copy);
        command
    }

    /// Makes more files beside the source, with its length and with the seeds 2, 3 and so on.
    pub fn more(&self, names: &[&str]) -> Vec<PathBuf> {
        let make = |(seed, name): (u8, &&str)| {
            let path = self.scratch.join(name);
            bytes::write(&path, seed.into(), LEN);
            path
        };
        (2..).zip(names).map(make).collect()
    }

    pub fn send_many(&self, options: &[&str], files: &[PathBuf]) -> Command {
        let mut command = thalweg();
        command.arg("send").arg("--to").arg(&self.socket).args(options).args(files);
        command
    }

    /// Connects to the receiver, and waits until it listens.
    pub fn connect(&self) -> Link {
        loop {
            match Link::connect(&Address::at(&self.socket)) {
                Ok(link) => break link,
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Makes the destination a directory.
    pub fn with_folder(self) -> Self {
        fs::create_dir(&self.copy).unwrap();
        self
    }

    /// Checks that only the source and these names exist.
    #[track_caller]
    pub fn expect_only(&self, more: &[&str]) {
        let mut expected = [&["source"], more].concat();
        expected.sort_unstable();
        assert_eq!(names(self.scratch.path()), expected);
        assert_eq!(unfinished(self.scratch.path()), Vec::<PathBuf>::new());
    }
}

/// Runs both commands to their ends.
pub fn both(receive: &mut Command, send: &mut Command) -> (Ran, Ran) {
    let receiving = Running::start(receive);
    let sent = Running::start(send).finish();
    (receiving.finish(), sent)
}

#[test]
fn a_file_is_handed_over_by_every_method_and_the_checksums_are_equal() {
    let place = Place::new(LEN);
    for arm in MECHANISMS {
        let name = arm.info().name;
        if let Err(why) = arm.probe() {
            skip("a_file_is_handed_over_by_every_method", &format!("{name}: {why}"));
            continue;
        }
        let send = &mut place.send(&["--json", "--method", name, "--buffer=3M"]);
        let (received, sent) = both(&mut place.receive(&["--json"]), send);
        let (received, sent) = (received.expect(0).json(), sent.expect(0).json());
        for account in [&received, &sent] {
            assert_eq!(account["mechanism"], name);
            assert_eq!(account["bytes"], LEN);
        }
        let verified = &received["verified"];
        assert_eq!((&verified["same"], &verified["differ"]), (&1.into(), &0.into()));
        bytes::expect(&place.copy, 1, LEN);
        place.expect_only(&["copy"]);
        fs::remove_file(&place.copy).unwrap();
    }
}

#[test]
fn streams_and_small_files_arrive_too() {
    for len in [0, 1, 4097, 1 << 20] {
        let place = Place::new(len);
        let mut send = thalweg();
        send.arg("send").arg("--to").arg(&place.socket).arg("-");
        // Standard input is a pipe, so that the length is unknown.
        let mut cat = Command::new("cat");
        let mut cat = cat.arg(&place.source).stdout(Stdio::piped()).spawn().unwrap();
        send.stdin(cat.stdout.take().unwrap());
        let mut receive = thalweg();
        receive.arg("receive").arg("--from").arg(&place.socket).args(["--json", "-"]);
        let (received, sent) = both(&mut receive, &mut send);
        sent.expect(0);
        cat.wait().unwrap();
        let received = received.expect(0);
        assert_eq!(received.json_on_stderr()["bytes"], len);
        assert!(received.stdout == bytes::of(1, len as usize), "other bytes came out");
        let (received, sent) = both(&mut place.receive(&[]), &mut place.send(&[]));
        received.expect(0);
        sent.expect(0);
        bytes::expect(&place.copy, 1, len);
        place.expect_only(&["copy"]);
    }
}

#[test]
fn the_sender_may_come_first_and_an_existing_file_is_replaced() {
    let place = Place::new(5000);
    fs::write(&place.copy, "old").unwrap();
    let sending = Running::start(&mut place.send(&[]));
    thread::sleep(Duration::from_millis(50));
    Running::start(&mut place.receive(&[])).finish().expect(0);
    sending.finish().expect(0);
    bytes::expect(&place.copy, 1, 5000);
    place.expect_only(&["copy"]);
}

/// Kills one side after a while; the other side must end by itself, with exit status 3.
fn one_dies(place: &Place, way: &str, receiver_dies: bool, after: u64) -> bool {
    fs::write(&place.copy, "old").unwrap();
    let mut receiving = Running::start(&mut place.receive(&[]));
    let mut sending = Running::start(&mut place.send(&[way, "--wait=5s"]));
    thread::sleep(Duration::from_micros(after));
    let dying = if receiver_dies { &mut receiving } else { &mut sending };
    drop(dying.child().kill());
    let (received, sent) = (receiving.finish(), sending.finish());
    let (died, survivor) = if receiver_dies { (received, sent) } else { (sent, received) };
    let landed = died.status.code().is_none();
    let text = fs::read(&place.copy).unwrap();
    assert!(text == b"old" || bytes::is(&place.copy, 1, LEN), "a torn file");
    match survivor.status.code() {
        Some(0) => {}
        Some(1) => assert!(landed, "{}", survivor.said()),
        code => panic!("{code:?}: {}", survivor.said()),
    }
    survivor.expect_no_panic();
    // A killed receiver leaves its socket behind, and the next receiver removes it.
    let _ = fs::remove_file(&place.socket);
    place.expect_only(&["copy"]);
    landed
}

#[test]
fn a_kill_of_either_side_leaves_the_old_file_and_the_other_reports_it() {
    let mut dice = Dice::new("a_kill_of_either_side_leaves_the_old_file_and_the_other_reports_it");
    let place = Place::new(LEN);
    let kills = from_env("THALWEG_KILLS", 6);
    let mut landed = 0;
    for n in 0..kills {
        // The sender gives up waiting for a receiver that was killed before it could listen.
        let after = 20_000 + dice.within(0..60_000);
        // The sender passes an open descriptor in some runs, and bytes in the others.
        let way = ["--buffer=1M", "--as-bytes"][(n / 2 % 2) as usize];
        landed += u64::from(one_dies(&place, way, n % 2 == 0, after));
    }
    assert!(landed > 0, "no kill landed");
}

#[test]
fn a_receiver_that_waits_in_vain_reports_it() {
    let place = Place::new(10);
    let ran = Running::start(&mut place.receive(&["--wait=100ms"])).finish().expect(1);
    ran.expect_said("no sender");
    let ran = Running::start(&mut place.send(&["--wait=100ms"])).finish().expect(1);
    ran.expect_said("no receiver");
    place.expect_only(&[]);
}

#[test]
fn a_silent_caller_does_not_keep_the_sender_out() {
    let place = Place::new(LEN);
    let receiving = Running::start(&mut place.receive(&[]));
    let silent = place.connect();
    drop(place.connect());
    Running::start(&mut place.send(&[])).finish().expect(0);
    let received = receiving.finish().expect(0);
    // On a busy machine, the real sender may be too slow at first.
    let refused = received.stderr.matches("; waiting for another sender").count();
    assert!(refused >= 2, "{}", received.stderr);
    assert!(!silent.peer_is_alive());
    bytes::expect(&place.copy, 1, LEN);
    place.expect_only(&["copy"]);
}

#[test]
fn a_second_sender_waits_for_the_next_receiver() {
    let place = Place::new(LEN);
    let first = Running::start(&mut place.receive(&[]));
    let silent = place.connect();
    // Both senders connect while the receiver still waits for the silent connection.
    let senders = [0, 1].map(|_| Running::start(&mut place.send(&["--wait=60s"])));
    thread::sleep(Duration::from_millis(500));
    drop(silent);
    first.finish().expect(0);
    bytes::expect(&place.copy, 1, LEN);
    fs::remove_file(&place.copy).unwrap();
    Running::start(&mut place.receive(&[])).finish().expect(0);
    for sender in senders {
        sender.finish().expect(0);
    }
    bytes::expect(&place.copy, 1, LEN);
    place.expect_only(&["copy"]);
}

#[test]
fn an_interrupt_while_waiting_ends_it_and_leaves_nothing() {
    let place = Place::new(10);
    for mut command in [place.receive(&[]), place.send(&[])] {
        let running = Running::start(&mut command);
        thread::sleep(Duration::from_millis(300));
        running.signal(Signal::INT);
        let ran = running.finish();
        assert!(ended_by(ran.status, libc::SIGINT), "{}", ran.said());
        place.expect_only(&[]);
    }
}

#[test]
fn a_destination_that_fails_is_named_on_both_sides() {
    let mut place = Place::new(LEN);
    place.copy = PathBuf::from("/dev/full");
    let (received, sent) = both(&mut place.receive(&["--json"]), &mut place.send(&[]));
    let received = received.expect(1);
    received.expect_said("cannot write '/dev/full': no space left on device (write: ENOSPC)");
    assert!(received.json()["error"].is_string());
    sent.expect(1).expect_said("the other process ended");
    place.expect_only(&[]);
}

#[test]
fn what_makes_no_sense_is_usage() {
    let place = Place::new(10);
    let usage = |words: &[&str]| {
        let mut command = thalweg();
        command.args(words).arg(&place.source);
        Running::start(&mut command).finish().expect(2);
    };
    usage(&["send", "--to", "bad name"]);
    usage(&["send", "--to", ".hidden"]);
    usage(&["send", "--to", "x", "--method", "carrier-pigeon"]);
    usage(&["send", "--to", "x", "--method", MECHANISMS[0].info().name, "--knob", "wings=2"]);
    usage(&["send", "--to", "x", "--knob", "slot=64K"]);
    usage(&["send", "--to", "x", "--buffer=0"]);
    usage(&["receive", "--from", "x", "--wait=soon"]);
    usage(&["send", "--to", "x", "-"]);
    // The command reports a missing directory before it waits for a sender.
    let mut nowhere = thalweg();
    nowhere.args(["receive", "--wait=0", "--from"]).arg(&place.socket);
    nowhere.arg(place.scratch.join("folder/"));
    Running::start(&mut nowhere).finish().expect(2).expect_said("no such directory");
    let twice = [place.source.clone(), place.scratch.join("elsewhere/source")];
    let ran = Running::start(&mut place.send_many(&[], &twice)).finish().expect(2);
    ran.expect_said("two files have this name");
    let folder = place.scratch.path().to_owned();
    let ran = Running::start(&mut place.send_many(&[], &[folder])).finish().expect(2);
    ran.expect_said("is a directory");
}

#[test]
fn a_link_to_nothing_is_left_alone() {
    let place = Place::new(10);
    std::os::unix::fs::symlink("nowhere", &place.copy).unwrap();
    let ran = Running::start(&mut place.receive(&["--wait=0"])).finish().expect(1);
    ran.expect_said("dangling symbolic link");
    assert!(place.copy.is_symlink());
    place.expect_only(&["copy"]);
}

/// Both sides print one plain line at the end, like a copy; `-q` suppresses it.
#[test]
fn the_way_is_named_at_the_end() {
    let place = Place::new(LEN);
    let (received, sent) = both(&mut place.receive(&[]), &mut place.send(&["--method=pipe"]));
    for (ran, did) in [(received, "1 file received"), (sent, "1 file sent")] {
        let ran = ran.expect(0);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        ran.expect_said(did);
        ran.expect_said(" by pipe");
        assert!(ran.stdout.is_empty());
    }
    let (received, sent) = both(&mut place.receive(&["--quiet"]), &mut place.send(&["-q"]));
    assert_eq!((received.expect(0).stderr, sent.expect(0).stderr), <(String, String)>::default());
}

#[test]
fn several_files_arrive_in_a_folder_by_every_method() {
    let place = Place::new(LEN).with_folder();
    let mut files = place.more(&["b", "empty", "with space"]);
    fs::write(&files[1], "").unwrap();
    files.push(place.source.clone());
    for arm in MECHANISMS.iter().filter(|arm| arm.probe().is_ok()) {
        let options = ["--json", "--buffer=3M", "--method", arm.info().name];
        let (received, sent) =
            both(&mut place.receive(&["--json"]), &mut place.send_many(&options, &files));
        for account in [received.expect(0).json(), sent.expect(0).json()] {
            assert_eq!((&account["files"], &account["bytes"]), (&4.into(), &(3 * LEN).into()));
            assert_eq!(account["mechanism"], arm.info().name);
        }
        assert_eq!(names(&place.copy), ["b", "empty", "source", "with space"]);
        bytes::expect(&place.copy.join("b"), 2, LEN);
        bytes::expect(&place.copy.join("with space"), 4, LEN);
        bytes::expect(&place.copy.join("source"), 1, LEN);
        assert_eq!(fs::read(place.copy.join("empty")).unwrap(), b"");
        fs::remove_dir_all(&place.copy).unwrap();
        fs::create_dir(&place.copy).unwrap();
    }
}

#[test]
fn what_is_there_already_stays_unless_forced_and_no_link_is_followed() {
    let place = Place::new(LEN).with_folder();
    let files = place.more(&["old", "link", "folder"]);
    let outside = place.scratch.join("outside");
    fs::write(&outside, "mine").unwrap();
    fs::write(place.copy.join("old"), "old").unwrap();
    std::os::unix::fs::symlink(&outside, place.copy.join("link")).unwrap();
    fs::create_dir(place.copy.join("folder")).unwrap();
    let mut all = files.clone();
    all.push(place.source.clone());
    let (received, sent) = both(&mut place.receive(&[]), &mut place.send_many(&[], &all));
    for ran in [received.expect(1), sent.expect(1)] {
        ran.expect_said("'old': rejected by the receiver");
        ran.expect_said("--force");
        ran.expect_said("3 of 4 files failed");
        ran.expect_said("1 file");
    }
    bytes::expect(&place.copy.join("source"), 1, LEN);
    assert_eq!(fs::read(place.copy.join("old")).unwrap(), b"old");
    let (received, sent) = both(&mut place.receive(&["--force"]), &mut place.send_many(&[], &all));
    for ran in [received.expect(1), sent.expect(1)] {
        ran.expect_said("'folder': rejected by the receiver");
        ran.expect_said("1 of 4 files failed");
    }
    bytes::expect(&place.copy.join("old"), 2, LEN);
    bytes::expect(&place.copy.join("link"), 3, LEN);
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
    assert_eq!(names(&place.copy), ["folder", "link", "old", "source"]);
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_back_the_others() {
    let place = Place::new(LEN).with_folder();
    let mut files = place.more(&["b"]);
    files.insert(0, place.scratch.join("missing"));
    // open(2) succeeds for this file, and read(2) fails.
    files.push(PathBuf::from("/proc/self/mem"));
    files.push(place.source.clone());
    let (received, sent) = both(&mut place.receive(&[]), &mut place.send_many(&[], &files));
    let sent = sent.expect(1);
    sent.expect_said("missing': no such file or directory (open: ENOENT)");
    sent.expect_said("'mem': the sender gave up");
    sent.expect_said("2 of 4 files failed");
    received.expect(1).expect_said("'mem': the sender gave up");
    assert_eq!(names(&place.copy), ["b", "source"]);
    bytes::expect(&place.copy.join("source"), 1, LEN);
}

#[test]
fn several_files_want_a_folder_and_a_folder_wants_names() {
    let place = Place::new(10);
    let files = place.more(&["b", "c"]);
    let (received, sent) = both(&mut place.receive(&[]), &mut place.send_many(&[], &files));
    received.expect(1).expect_said("not a directory");
    sent.expect(1).expect_said("not a directory");
    assert!(!place.copy.exists());
    let place = place.with_folder();
    let mut stream = thalweg();
    stream.arg("send").arg("--to").arg(&place.socket).arg("-").stdin(Stdio::null());
    let (received, sent) = both(&mut place.receive(&[]), &mut stream);
    received.expect(1).expect_said("a stream has no name");
    sent.expect(1).expect_said("a stream has no name");
    assert_eq!(names(&place.copy), <[&str; 0]>::default());
}

/// The sender requests a method that accesses the memory of the receiver, but the receiver does not trust the sender.
#[test]
fn a_method_that_is_not_allowed_is_exit_4_on_both_sides() {
    let place = Place::new(10);
    for arm in MECHANISMS.iter().filter(|arm| arm.info().nature.wants_trust && arm.probe().is_ok())
    {
        let name = arm.info().name;
        let send = &mut place.send(&["--method", name]);
        let (received, sent) = both(&mut place.receive(&["--no-trust"]), send);
        for ran in [received, sent] {
            ran.expect(4).expect_said(name);
        }
        place.expect_only(&[]);
    }
}

#[test]
fn equal_bytes_arrive_if_calls_are_refused_and_the_reason_is_reported() {
    let test = "the_same_bytes_arrive_where_calls_are_refused";
    let place = Place::new(LEN);
    let every: Vec<&Call> = FAST.iter().chain(&SHARED).collect();
    let ones = SHARED.iter().map(|call| vec![call]);
    for calls in ones.chain([every]) {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let receiving = Running::start(&mut place.receive(&[]));
            let sent = match run_without(&calls, errno, &mut place.send(&["--json", "--as-bytes"]))
            {
                Ok(sent) => sent.expect(0).json(),
                Err(why) => return skip(test, &format!("no seccomp: {why}")),
            };
            receiving.finish().expect(0);
            expect_whole(&place.copy);
            let sending = Running::start(&mut place.send(&["--as-bytes"]));
            let received = run_without(&calls, errno, &mut place.receive(&["--json"]));
            received.unwrap().expect(0);
            sending.finish().expect(0);
            expect_whole(&place.copy);
            let used = sent["mechanism"].as_str().unwrap();
            let uses = |name: &&str| {
                MECHANISMS.iter().any(|a| a.info().name == used && a.info().calls.contains(name))
            };
            let refused = calls.iter().map(|call| call.name).find(uses);
            assert_eq!(refused, None, "{used} was used");
            if calls.iter().any(|call| call.name == "memfd_create") {
                let told = sent["unavailable"].to_string();
                assert!(told.contains("memfd_create"), "{sent}");
            }
        }
    }
}

#[track_caller]
fn expect_whole(copy: &Path) {
    bytes::expect(copy, 1, LEN);
    fs::remove_file(copy).unwrap();
}
