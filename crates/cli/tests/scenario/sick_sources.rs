//! Sources with read errors, short reads, or reads that never return, simulated with FUSE.

use rustix::process::Signal;
use std::{
    fs,
    time::{Duration, Instant},
};
use thalweg_tree::{CopyOptions, count};

use crate::support::{
    Running, Scratch, bytes, file_methods,
    fuse::source::{Illness, NAME, SickSource},
    mounts, names, run,
    run::{GUARD, ended_by, wrapped},
    slow_disk::{SlowDisk, write_to_disk},
    thalweg,
};

const LEN: u64 = 3 * 1024 * 1024 + 77;
const BAD: u64 = 2 * 1024 * 1024 + 4096;

/// Returns the number N in "after N bytes" of a message.
fn bytes_said(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(" after ")?;
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().ok()
}

#[test]
fn a_read_error_names_the_source_and_how_far_it_got() {
    let test = "a_read_error_names_the_source_and_how_far_it_got";
    let Some(sick) = SickSource::mount(test, Illness::BrokenAt(BAD), 7, LEN) else { return };
    let methods = file_methods();
    let ways = methods.iter().map(|name| vec!["--method", name]).chain([vec![], vec!["--verify"]]);
    let mut read = 0;
    for way in ways {
        let scratch = Scratch::new();
        let mut copy = thalweg();
        copy.arg("copy").args(&way).args([sick.source(), scratch.join("copy")]);
        let ran = run(&mut copy).expect_no_panic();
        assert_eq!(names(scratch.path()), Vec::<String>::new(), "{way:?}");
        if ran.code() == 4 {
            continue;
        }
        let ran = ran.expect(1);
        assert!(ran.stderr.contains("EIO"), "{way:?}: {}", ran.stderr);
        let source = sick.source();
        assert!(ran.stderr.contains(source.to_str().unwrap()), "{way:?}: {}", ran.stderr);
        let said = bytes_said(&ran.stderr);
        assert!(said.is_some_and(|n| n > 0 && n <= BAD), "{way:?}: {said:?} in {}", ran.stderr);
        read += 1;
    }
    assert!(read >= 3, "only {read} ways came as far as the bad place");
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_the_others_of_its_tree_away() {
    let test = "a_file_that_cannot_be_read_does_not_keep_the_others_of_its_tree_away";
    let Some(sick) = SickSource::mount(test, Illness::BrokenAt(BAD), 7, LEN) else { return };
    let scratch = Scratch::new();
    let healthy = scratch.folder("healthy");
    bytes::write(&healthy.join("one"), 1, 100_000);
    bytes::write(&healthy.join("two"), 2, 5 << 20);
    let copy = scratch.folder("copy");
    let mut command = thalweg();
    command.args(["copy", "-r"]).args([sick.folder(), &healthy, &copy]);
    let ran = run(&mut command).expect(1);
    ran.expect_said("EIO");
    ran.expect_said(NAME);
    assert_eq!(names(&copy.join("healthy")), ["one", "two"]);
    bytes::expect(&copy.join("healthy/one"), 1, 100_000);
    bytes::expect(&copy.join("healthy/two"), 2, 5 << 20);
    let sick_copy = copy.join("sick");
    assert_eq!(if sick_copy.exists() { names(&sick_copy) } else { vec![] }, Vec::<String>::new());
    assert_eq!(names(scratch.path()), ["copy", "healthy"]);
}

#[test]
fn a_slow_source_is_read_by_several_requests_at_a_time() {
    let test = "a_slow_source_is_read_by_several_requests_at_a_time";
    let len = 24 << 20;
    let mount = || SickSource::mount(test, Illness::Late(Duration::from_millis(20)), 7, len);
    for way in [&["copy"][..], &["copy", "--verify"], &["copy", "--jobs", "1"]] {
        let (Some(sick), scratch) = (mount(), Scratch::new()) else { return };
        let copy = scratch.join("copy");
        run(thalweg().args(way).args([&sick.source(), &copy])).expect(0);
        bytes::expect(&copy, 7, len);
        // For a single reader, the kernel's read-ahead sends at most two reads at the same time.
        let most = sick.most_reads_at_once();
        assert!(most >= 6, "{way:?}: {most} reads at once");
    }
}

#[test]
fn a_stream_that_breaks_ends_with_what_was_read_and_a_failure() {
    let test = "a_stream_that_breaks_ends_with_what_was_read_and_a_failure";
    let Some(sick) = SickSource::mount(test, Illness::BrokenAt(BAD), 7, LEN) else { return };
    for way in [vec![], vec!["--zero-copy"]] {
        let mut pipe = thalweg();
        pipe.arg("pipe").args(&way).stdin(fs::File::open(sick.source()).unwrap());
        let ran = run(&mut pipe).expect(1);
        ran.expect_said("EIO");
        let got = ran.stdout.len();
        assert!(got as u64 <= BAD && ran.stdout == bytes::of(7, got), "{way:?}: {got} bytes");
    }
}

#[test]
fn short_reads_lose_nothing() {
    let test = "short_reads_lose_nothing";
    let methods = file_methods();
    let ways = methods.iter().map(|name| vec!["--method", name]).chain([vec![], vec!["--verify"]]);
    let mut whole = 0;
    for way in ways {
        // Mounts a new file system for each method. Some calls use the page cache nevertheless: the kernel then treats
        // a short read as the end of the file, and remembers a smaller size.
        let Some(sick) = SickSource::mount(test, Illness::ShortReads, 8, LEN) else { return };
        let scratch = Scratch::new();
        let copy = scratch.join("copy");
        let mut command = thalweg();
        command.arg("copy").args(&way).args([&sick.source(), &copy]);
        let ran = run(&mut command).expect_no_panic();
        match ran.code() {
            0 => assert!(bytes::is(&copy, 8, LEN), "{way:?}: other bytes"),
            3 => assert!(ran.stderr.contains("changed"), "{way:?}: {}", ran.stderr),
            4 => assert_eq!(names(scratch.path()), Vec::<String>::new(), "{way:?}"),
            _ => panic!("{way:?}: {}", ran.said()),
        }
        whole += usize::from(ran.code() == 0);
    }
    assert!(whole >= 3, "only {whole} ways could copy it");
    let Some(sick) = SickSource::mount(test, Illness::ShortReads, 8, LEN) else { return };
    let mut pipe = thalweg();
    pipe.arg("pipe").stdin(fs::File::open(sick.source()).unwrap());
    assert!(run(&mut pipe).expect(0).stdout == bytes::of(8, LEN as usize));
}

#[test]
fn ctrl_c_ends_a_copy_whose_source_does_not_answer() {
    let test = "ctrl_c_ends_a_copy_whose_source_does_not_answer";
    for way in [vec![], vec!["--jobs=4", "-a"]] {
        let Some(sick) = SickSource::mount(test, Illness::SilentAt(1 << 20), 9, LEN) else {
            return;
        };
        let scratch = Scratch::new();
        let copy = scratch.join("copy");
        let source = if way.is_empty() { sick.source() } else { sick.folder().to_owned() };
        let mut command = thalweg();
        command.arg("copy").args(&way).args([&source, &copy]);
        let running = Running::start(&mut command);
        let began = Instant::now();
        while !sick.is_waited_for() {
            assert!(began.elapsed() < GUARD, "the silent place was never read");
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(Signal::INT);
        // The limit is generous for a busy machine. A user would press Ctrl-C again after a few seconds.
        let ran = running.finish_within(began.elapsed() + Duration::from_secs(60));
        assert!(ended_by(ran.status, libc::SIGINT), "{}", ran.status);
        if way.is_empty() {
            assert!(!copy.exists(), "something partial under the final name");
        } else {
            assert!(!copy.join(NAME).exists(), "something partial under the final name");
        }
    }
}

/// Returns `true` if the process has been waiting for a disk (state D) for 50 ms.
fn waits_for_a_disk(pid: u32) -> bool {
    (0..5).all(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|fields| fields.starts_with(" D"))
    })
}

#[test]
fn ctrl_c_ends_a_copy_whose_disk_gives_next_to_nothing() {
    let test = "ctrl_c_ends_a_copy_whose_disk_gives_next_to_nothing";
    let Some(root) = mounts().get(test, "ext4") else { return };
    let scratch = Scratch::within(root);
    let Some(slow) = SlowDisk::under(test, scratch.path(), 4096) else { return };
    // In the first case the kernel ends the process at the signal, in the second a thread of thalweg.
    for (n, option) in ["--no-profile", "--resume"].into_iter().enumerate() {
        let (source, copy) = (scratch.join(&format!("source{n}")), scratch.join("copy"));
        write_to_disk(&source, &bytes::of(n as u64, LEN as usize));
        let mut command = wrapped(&slow.words());
        let mut running = Running::start(command.args(["copy", option]).args([&source, &copy]));
        let began = Instant::now();
        while !waits_for_a_disk(running.child().id()) {
            assert!(!running.has_ended() && began.elapsed() < GUARD, "it never waited");
        }
        running.signal(Signal::INT);
        let ran = running.finish_within(began.elapsed() + Duration::from_secs(60));
        assert!(ended_by(ran.status, libc::SIGINT), "{}", ran.status);
        assert!(!copy.exists(), "something partial under the final name");
    }
}

#[test]
fn a_signal_in_the_middle_of_a_listing_is_not_its_end() {
    let test = "a_signal_in_the_middle_of_a_listing_is_not_its_end";
    let mount = || SickSource::mount(test, Illness::InterruptedListing, 7, LEN);
    let Some(sick) = mount() else { return };
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let total = count(&[sick.folder().to_owned()], &options, &|| Ok(()));
    assert_eq!(total.map(|total| (total.files, total.bytes)), Some((1, LEN)));
    drop(sick);
    let Some(sick) = mount() else { return };
    let scratch = Scratch::new();
    run(thalweg().args(["copy", "-r"]).args([sick.folder(), &scratch.join("new")])).expect(0);
    bytes::expect(&scratch.join("new").join(NAME), 7, LEN);
}
