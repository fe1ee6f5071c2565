//! Opens and runs arms of the works `transfer` and `program` as a session does: every mechanism
//! between all ends, with short and odd sizes. Other tests kill the peer process and pass invalid
//! parameters.

use std::{
    path::{Path, PathBuf},
    process::Command,
};
use thalweg_core::{Kind, MECHANISMS, Role, Unfit, alias::Alias};
use thalweg_lab::arms::{ARM_KINDS, Arm, ArmJob};
use thalweg_measure::schedule::SampleFailure;

use thalweg_testing::skip;

const HELPER: &str = env!("CARGO_BIN_EXE_thalweg-lab-helper");

fn open(work: &str, with: &str, bytes: u64, scratch: &Path) -> Result<Box<dyn Arm>, Unfit> {
    let with: toml::Table = with.parse().unwrap();
    let work = ARM_KINDS.iter().find(|known| known.name == work).unwrap();
    let studies = scratch;
    let program = Path::new(HELPER);
    work.open(&ArmJob { arm: "arm", with: &with, bytes, scratch, studies, program })
}

/// Opens and runs an arm as a session does. Returns the number of calls of its last sample.
fn used(work: &str, with: &str, bytes: u64) -> Result<u64, Unfit> {
    let scratch = tempfile::tempdir().unwrap();
    let mut piece = open(work, with, bytes, scratch.path())?;
    piece.warm_up()?;
    let mut calls = 0;
    for repeats in [1, 3] {
        let sample = piece.sample(repeats).map_err(|failure| match failure {
            SampleFailure::Unfit(unfit) => unfit,
            SampleFailure::Cancelled => Unfit::because("stopped"),
        })?;
        assert_eq!(sample.bytes, bytes * u64::from(repeats), "{with}");
        assert!(sample.wall.as_nanos() > 0 && sample.user >= sample.far_user, "{with}");
        calls = sample.calls.unwrap_or(0);
        piece.check()?;
    }
    drop(piece);
    let left = std::fs::read_dir(scratch.path()).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name != "content").collect();
    assert!(left.is_empty(), "{with} left {left:?}");
    Ok(calls)
}

const SOURCES: &[(&str, Kind)] =
    &[("zero", Kind::Device), ("file", Kind::File), ("memfd", Kind::File)];
const SINKS: &[(&str, Kind)] = &[
    ("null", Kind::Null),
    ("file", Kind::File),
    ("pipe", Kind::Pipe),
    ("unix", Kind::Socket),
    ("tcp", Kind::Socket),
];

#[test]
fn every_mechanism_moves_odd_numbers_of_bytes_between_all_ends_it_serves() {
    let mut moved = 0;
    for mechanism in MECHANISMS.iter().filter(|m| m.info().role != Role::Harness) {
        let name = mechanism.info().name;
        for ((source, from), (sink, to)) in
            SOURCES.iter().flat_map(|source| SINKS.iter().map(move |sink| (source, sink)))
        {
            let with = format!("mechanism = '{name}'\nsource = '{source}'\nsink = '{sink}'");
            let serves = mechanism.info().pair(*from, *to).is_some();
            for bytes in [1, 4097, 1_234_567] {
                match used("transfer", &with, bytes) {
                    Ok(calls) if serves => {
                        assert!(calls > 0, "{with}: no calls for {bytes}");
                        moved += 1;
                    }
                    Ok(_) => panic!("{with}: it serves no such pair"),
                    Err(unfit) if !serves => {
                        assert!(
                            unfit.reason.contains("does not support the pair"),
                            "{with}: {unfit}"
                        );
                    }
                    // The file system or the kernel lacks something, or refuses these ends.
                    Err(unfit) => {
                        assert!(may_refuse(name, *from), "{with}, {bytes} bytes: {unfit}");
                        if bytes == 1 {
                            skip("transfer", &format!("{name} {source} -> {sink}: {unfit}"));
                        }
                    }
                }
            }
        }
    }
    assert!(moved > 100, "{moved}");
}

/// Returns `true` for mechanisms that depend on the file system or on limits, and for reads from
/// `/dev/zero`, which some mechanisms refuse.
fn may_refuse(name: &str, from: Kind) -> bool {
    let depends = ["reflink", "io-uring", "read-write-direct", "msg-zerocopy", "copy-file-range"];
    depends.contains(&name) || from == Kind::Device
}

#[test]
fn a_paced_source_is_no_faster_than_its_rate_and_arrives_right() {
    let with = "source = 'paced'\nrate = '10MB/s'\nsink = 'null'\n";
    for mechanism in ["read-write", "splice"] {
        let scratch = tempfile::tempdir().unwrap();
        let with = format!("mechanism = '{mechanism}'\n{with}");
        let mut piece = open("transfer", &with, 500_001, scratch.path()).unwrap();
        piece.warm_up().unwrap();
        let sample = piece.sample(2).unwrap();
        // The feeder's clock starts slightly before that of the sample.
        assert!(sample.wall.as_secs_f64() >= 0.09, "{:?}", sample.wall);
        piece.check().unwrap();
    }
    let with = "mechanism = 'splice'\nsource = 'paced'\nrate = '50MB/s'\nsink = 'file'";
    used("transfer", with, 300_007).unwrap();
}

#[test]
fn parameters_reach_both_sides() {
    let one = "source = 'file'\nmechanism = 'read-write'\ntuning = { buffer = '4KiB' }\n";
    let bytes = 1 << 20;
    let small = format!("{one}sink = 'tcp'\nreceiver_buffer = '1KiB'");
    let large = format!("{one}sink = 'tcp'\nreceiver_buffer = '1MiB'\ncongestion = 'reno'");
    let (small, large) =
        (used("transfer", &small, bytes).unwrap(), used("transfer", &large, bytes).unwrap());
    // Three operations with 256 reads and 256 writes each, and the receiver's 1024 reads each.
    assert!(small >= 3 * (512 + 1024) && large < small, "{small} {large}");
    let pipe = "mechanism = 'splice'\nsource = 'file'\nsink = 'pipe'\n";
    used("transfer", &format!("{pipe}pipe = '256KiB'"), 777_777).unwrap();
    let reused = "mechanism = 'read-write'\nsource = 'file'\nsink = 'file'\nfresh = false";
    used("transfer", reused, 777_777).unwrap();
    let shm = "mechanism = 'read-write'\nsource = 'file'\nsink = 'file'\nplace = 'tmpfs'";
    match used("transfer", shm, 77_777) {
        Ok(_) => {}
        Err(unfit) => skip("parameters_reach_both_sides", &unfit.reason),
    }
}

#[test]
fn the_far_side_shows_apart_from_the_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let with = "mechanism = 'sendfile'\nsource = 'memfd'\nsink = 'unix'\nreceiver_buffer = '4KiB'";
    let mut piece = open("transfer", with, 64 << 20, scratch.path()).unwrap();
    piece.warm_up().unwrap();
    let sample = piece.sample(1).unwrap();
    let far = sample.far_user + sample.far_sys;
    assert!(!far.is_zero() && far < sample.user + sample.sys, "{sample:?}");
    assert!(sample.calls.unwrap() > (64 << 20) / 4096);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let wrong = [
        (
            "mechanism = 'splice'\nsource = 'zero'\nsink = 'unix'",
            "does not support the pair device -> socket",
        ),
        (
            "mechanism = 'sendfile'\nsource = 'file'\nsink = 'unix'\nneeds = 'copied'",
            "shares pages",
        ),
        ("mechanism = 'splice'\nsource = 'paced'\nsink = 'null'", "100MB/s"),
        ("mechanism = 'splice'\nsource = 'file'\nsink = 'null'\nplace = 'nofs'", "no nofs here"),
        ("mechanism = 'sendfile'\nsource = 'file'\nsink = 'tcp'\ncongestion = 'sloth'", "sloth"),
        ("mechanism = 'splice'\nsource = 'zero'\nsink = 'null'\nfoo = 1", "foo"),
    ];
    let scratch = tempfile::tempdir().unwrap();
    for (with, expected) in wrong {
        let Err(unfit) = open("transfer", with, 100, scratch.path()) else { panic!("{with}") };
        assert!(unfit.reason.contains(expected), "{with}: {unfit}");
    }
    let zero = "mechanism = 'splice'\nsource = 'zero'\nsink = 'null'";
    assert!(open("transfer", zero, 0, scratch.path()).is_err());
    let program = [
        ("command = ['cp', '{source}']", "not contain {sink}"),
        ("command = []", "not contain {source}"),
        ("command = ['no-such-program', '{source}', '{sink}']", "no-such-program"),
        ("command = ['cp', '{source}', '{sink}']\nshell = true", "shell"),
    ];
    for (with, expected) in program {
        let Err(unfit) = open("program", with, 100, scratch.path()) else { panic!("{with}") };
        assert!(unfit.reason.contains(expected), "{with}: {unfit}");
    }
}

#[test]
fn a_helper_that_is_none_is_an_answer() {
    let scratch = tempfile::tempdir().unwrap();
    let with = "mechanism = 'splice'\nsource = 'file'\nsink = 'unix'".parse().unwrap();
    let work = ARM_KINDS.iter().find(|known| known.name == "transfer").unwrap();
    for (program, expected) in [("/no/such/file", "No such file"), ("/bin/false", "ended")] {
        let (program, folder) = (Path::new(program), scratch.path());
        let job =
            ArmJob { arm: "a", with: &with, bytes: 9, scratch: folder, studies: folder, program };
        let Err(unfit) = work.open(&job) else { panic!("{} is a helper", program.display()) };
        assert!(unfit.reason.contains(expected), "{unfit}");
    }
}

/// Returns the processes of this kind that the test's own thread started.
fn children(kind: &str) -> Vec<i32> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/self/task/{thread}/children"));
    let Ok(listed) = listed else { return Vec::new() };
    let is_kind = |id: &i32| {
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == kind.as_bytes())
    };
    listed.split_whitespace().filter_map(|id| id.parse().ok()).filter(is_kind).collect()
}

#[test]
fn a_far_side_that_dies_is_an_error_and_stays_one() {
    let ends = [
        ("receiver", "mechanism = 'splice'\nsource = 'file'\nsink = 'pipe'"),
        ("receiver", "mechanism = 'sendfile'\nsource = 'file'\nsink = 'tcp'"),
        ("receiver", "mechanism = 'read-write'\nsource = 'zero'\nsink = 'unix'"),
        ("feeder", "mechanism = 'splice'\nsource = 'paced'\nrate = '1GB/s'\nsink = 'null'"),
        ("feeder", "mechanism = 'read-write'\nsource = 'paced'\nrate = '1GB/s'\nsink = 'null'"),
    ];
    for (kind, with) in ends {
        let scratch = tempfile::tempdir().unwrap();
        let mut piece = open("transfer", with, 4 << 20, scratch.path()).unwrap();
        piece.warm_up().unwrap();
        let [id] = children(kind)[..] else {
            return skip("a_far_side_that_dies", "no /proc/self/task/*/children here");
        };
        // The receiver or feeder is killed after 50 ms, so that it dies during a transfer and not
        // before the first one.
        let killer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap();
        });
        let failure = loop {
            match piece.sample(1) {
                Ok(_) => {}
                Err(SampleFailure::Unfit(unfit)) => break unfit,
                Err(SampleFailure::Cancelled) => panic!("stopped"),
            }
        };
        killer.join().unwrap();
        assert!(failure.reason.contains(kind), "{with}: {failure}");
        let Err(SampleFailure::Unfit(again)) = piece.sample(1) else { panic!("{with} went on") };
        assert_eq!(again, failure);
        assert!(piece.check().is_err());
    }
}

#[test]
fn a_planted_wrong_byte_is_found_wherever_it_arrives() {
    for sink in ["pipe", "unix", "tcp", "file"] {
        let scratch = tempfile::tempdir().unwrap();
        let with = format!("mechanism = 'read-write'\nsource = 'file'\nsink = '{sink}'");
        let mut piece = open("transfer", &with, 600_000, scratch.path()).unwrap();
        piece.warm_up().unwrap();
        piece.check().unwrap();
        let content = scratch.path().join("content");
        let mut bytes = std::fs::read(&content).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 0x20;
        std::fs::write(&content, &bytes).unwrap();
        let found = piece.check().unwrap_err();
        assert!(found.reason.contains("wrong byte"), "{sink}: {found}");
    }
}

#[test]
fn whether_pages_are_shared_is_looked_at_for_the_arms_own_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let alias = |with: &str| {
        let mut piece = open("transfer", with, 4096, scratch.path()).unwrap();
        piece.warm_up().unwrap();
        piece.alias()
    };
    for sink in ["pipe", "unix", "tcp"] {
        for source in ["file", "memfd"] {
            let with = format!("mechanism = 'read-write'\nsource = '{source}'\nsink = '{sink}'");
            // A control: with read-write, every kernel copies the bytes.
            assert_eq!(alias(&with), Some(Ok(Alias::Copied)), "{with}");
            let with = with.replace("read-write", "sendfile");
            assert!(matches!(alias(&with), Some(Ok(_))), "{with}");
        }
    }
    assert_eq!(alias("mechanism = 'splice'\nsource = 'zero'\nsink = 'null'"), None);
    assert_eq!(alias("mechanism = 'splice'\nsource = 'file'\nsink = 'null'"), None);
}

#[test]
fn a_program_copies_and_its_output_explains_a_failure() {
    if !on_path("cp") {
        return skip("a_program_copies", "no cp");
    }
    for bytes in [0, 1, 1_234_567] {
        used("program", "command = ['cp', '{source}', '{sink}']", bytes).unwrap();
    }
    used("program", "command = ['sh', '-c', 'cat < \"{source}\" > \"{sink}\"']", 99_999).unwrap();
    let wrong = [
        ("command = ['cp', '--no-such-option', '{source}', '{sink}']", "no-such-option"),
        ("command = ['sh', '-c', 'kill -9 $$', '{source}', '{sink}']", "signal: 9"),
        (
            "command = ['sh', '-c', 'head -c 5 \"$1\" > \"$2\"', 'x', '{source}', '{sink}']",
            "has 5 bytes",
        ),
        (
            "command = ['sh', '-c', 'tr a b < \"$1\" > \"$2\"', 'x', '{source}', '{sink}']",
            "a wrong byte",
        ),
    ];
    for (with, expected) in wrong {
        let unfit = used("program", with, 100_000).unwrap_err();
        assert!(unfit.reason.contains(expected), "{with}: {unfit}");
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.iter().any(|folder| folder.join(program).exists())
}
