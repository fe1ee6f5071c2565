//! Tests the probes of pipes and sockets. Results that depend on the kernel are printed, but not
//! asserted.

use std::path::Path;
use thalweg_core::Unfit;
use thalweg_lab::arms::{ArmJob, PROBES, ProbeFinding};

fn run(probe: &str, with: &str) -> Result<ProbeFinding, Unfit> {
    let scratch = tempfile::tempdir().unwrap();
    let with: toml::Table = with.parse().unwrap();
    let probe = PROBES.iter().find(|known| known.name == probe).unwrap();
    let (scratch, program) = (scratch.path(), Path::new("/no/helper/is/needed"));
    let job = ArmJob { arm: "arm", with: &with, bytes: 1, scratch, studies: scratch, program };
    let found = probe.run(&job);
    if let Ok(found) = &found {
        eprintln!("{}: {:?}: {}", probe.name, found.numbers, found.text);
    }
    found
}

#[test]
fn what_is_written_is_copied_and_what_is_spliced_is_looked_at() {
    for source in ["memory", "file", "memfd"] {
        for sink in ["pipe", "unix", "tcp", "file"] {
            let with = |mechanism: &str| {
                format!("mechanism = '{mechanism}'\nsource = '{source}'\nsink = '{sink}'")
            };
            let written = run("alias", &with("read-write")).unwrap();
            assert_eq!(written.numbers, [0.0], "{}", written.text);
            for mechanism in ["splice", "sendfile"] {
                match run("alias", &with(mechanism)) {
                    Ok(found) => assert!(found.numbers == [0.0] || found.numbers == [1.0]),
                    Err(unfit) => {
                        assert!(unfit.reason.contains("does not support the pair"), "{unfit}");
                    }
                }
            }
        }
    }
    let zerocopy = run("alias", "mechanism = 'msg-zerocopy'\nsource = 'file'\nsink = 'unix'");
    assert!(zerocopy.unwrap_err().reason.contains("MSG_ZEROCOPY"));
}

#[test]
fn calls_are_counted_for_each_buffer() {
    for sink in ["tcp", "unix"] {
        for buffer in ["1", "4KiB", "64KiB"] {
            let with = format!("mechanism = 'read-write'\nbuffer = '{buffer}'\nsink = '{sink}'");
            // Each buffer needs a read and a write on every kernel and socket. Short reads or
            // writes need more calls.
            let found = run("calls-per-buffer", &with).unwrap();
            assert!(found.numbers[0] >= 2.0 && found.numbers.len() == 1, "{}", found.text);
        }
        let with = format!("mechanism = 'sendfile'\nbuffer = '4KiB'\nsink = '{sink}'");
        assert!(run("calls-per-buffer", &with).unwrap().numbers[0] >= 1.0);
    }
}

#[test]
fn splice_answers_add_up_to_a_histogram() {
    for source in ["zero", "file", "memfd"] {
        for threads in [1, 2] {
            let with = format!("source = '{source}'\nthreads = {threads}");
            let found = run("splice-returns", &with).unwrap();
            assert!(!found.numbers.is_empty() && found.numbers.is_sorted(), "{}", found.text);
            assert!(found.numbers.iter().all(|n| *n >= 1.0), "{}", found.text);
            assert_eq!(found.text.matches("pipe of").count(), 2);
        }
    }
    let one = run("splice-returns", "source = 'memfd'\npipes = ['4KiB']").unwrap();
    assert!(one.numbers.iter().all(|n| *n <= 4096.0), "{}", one.text);
}

#[test]
fn vmsplice_takes_no_more_than_the_pipe_holds() {
    let found = run("vmsplice-limit", "").unwrap();
    assert_eq!(found.numbers.len(), 2);
    let small = run("vmsplice-limit", "bytes = 5000\npipes = ['64KiB']").unwrap();
    assert_eq!(small.numbers, [5000.0]);
    let directions = run("vmsplice-directions", "").unwrap();
    assert_eq!(directions.numbers.len(), 2);
    assert!(directions.numbers.iter().all(|n| [0.0, 1.0].contains(n)), "{}", directions.text);
}

#[test]
fn nonsense_is_refused_with_its_name() {
    let wrong = [
        ("alias", "mechanism = 'teleport'\nsource = 'file'\nsink = 'pipe'", "teleport"),
        ("alias", "mechanism = 'splice'\nsource = 'zero'\nsink = 'pipe'", "zero"),
        (
            "alias",
            "mechanism = 'splice'\nsource = 'memory'\nsink = 'pipe'",
            "does not support the pair",
        ),
        ("alias", "mechanism = 'splice'\nsource = 'file'\nsink = 'pipe'\nx = 1", "x"),
        ("calls-per-buffer", "mechanism = 'splice'\nbuffer = 0", "1 byte to 16 MiB"),
        ("calls-per-buffer", "mechanism = 'splice'\nbuffer = '1GiB'", "1 byte to 16 MiB"),
        ("calls-per-buffer", "mechanism = 'x'\nbuffer = 1", "no such mechanism"),
        ("splice-returns", "source = 'zero'\nthreads = 3", "1 or 2"),
        ("splice-returns", "source = 'zero'\npipes = []", "1 or 2"),
        ("vmsplice-limit", "bytes = '2GiB'", "up to 1 GiB"),
        ("vmsplice-directions", "both = true", "both"),
    ];
    for (probe, with, expected) in wrong {
        let reason = run(probe, with).unwrap_err().reason;
        assert!(reason.contains(expected), "{probe} {with}: {reason}");
    }
}
