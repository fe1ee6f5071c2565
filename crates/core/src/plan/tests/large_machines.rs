//! Plans with simulated profiles of machines that are larger than those of the tests. The ratios are made up; the tests
//! check that no limit in the code replaces a measurement.

use super::*;

/// A measurement of 1 GiB: the mechanism with its tuning, the ratios of wall time and of CPU time, and the load.
fn measured(
    ends: [&str; 2],
    mechanism: &str,
    tuning: Tuning,
    [wall, cpu]: [f64; 2],
    load: Load,
) -> Cell {
    let of = |ratio: f64| Ratio { ratio, lo: ratio * 0.95, hi: ratio * 1.05 };
    let options =
        ends.map(|end| if end.starts_with("file") { "rw".to_owned() } else { String::new() });
    let (source, sink) = (ends[0].to_owned(), ends[1].to_owned());
    let (wall, cpu) = (of(wall), of(cpu));
    Cell { source, sink, options, tuning, load, wall, cpu, ..cell(mechanism, 1 << 30, 1.0) }
}

fn facts(ends: [&str; 2], len: u64, needs: Guarantees) -> Facts {
    let [source, sink] = ends.map(|end| {
        EndFacts::of_key(end, if end.starts_with("file") { "rw" } else { "" }).expect("a key")
    });
    Facts { source, sink, len: Some(len), needs }
}

fn chosen(facts: &Facts, request: &Request, cells: &[Cell]) -> (&'static str, Tuning) {
    let mut profile = Profile::new();
    profile.merge(cells.to_vec());
    let plan = Plan::make(facts, request, Some(&profile));
    let first = plan.chosen().expect("a plan");
    (first.mechanism, first.tuning.clone())
}

/// 64 cores and a disk of 10 GB/s: several threads copy faster than one system call, but take more CPU time.
#[test]
fn on_many_cores_a_large_file_is_copied_by_as_many_threads_as_were_fastest() {
    let ends = ["file:xfs", "file:xfs"];
    let threads = Tuning::of("threads", 32).with("buffer", 4 << 20);
    let cell =
        |name, tuning: &Tuning, ratios, load| measured(ends, name, tuning.clone(), ratios, load);
    let plain = Tuning::default();
    let cells = [
        cell("copy-file-range", &plain, [0.9, 0.6], Load::Idle),
        cell("read-write-parallel", &threads, [0.15, 1.4], Load::Idle),
        cell("read-write", &plain, [1.0, 1.0], Load::Idle),
        cell("copy-file-range", &plain, [0.9, 0.6], Load::Loaded),
        cell("read-write-parallel", &threads, [1.2, 1.5], Load::Loaded),
        cell("read-write", &plain, [1.0, 1.0], Load::Loaded),
    ];
    let without = vec!["reflink".to_owned()];
    let idle = Request { without, ..Request::default() };
    for len in [1 << 30, 1 << 40, 1 << 46] {
        let facts = facts(ends, len, Guarantees::COPIED);
        assert_eq!(
            chosen(&facts, &idle, &cells),
            ("read-write-parallel", threads.clone()),
            "{len}"
        );
        for other in [
            Request { load: Load::Loaded, ..idle.clone() },
            Request { prefer: Prefer::Cpu, ..idle.clone() },
        ] {
            assert_eq!(chosen(&facts, &other, &cells).0, "copy-file-range", "{len}");
        }
    }
}

/// A link of 100 Gbit/s: large pipes, which this machine may not even allow.
#[test]
fn on_a_fast_link_the_measured_size_of_the_pipe_is_used() {
    let ends = ["file:xfs", "socket:inet"];
    let pipe = Tuning::of("pipe", 64 << 20);
    let cells = [
        measured(ends, "splice", pipe.clone(), [0.3, 0.2], Load::Idle),
        measured(ends, "sendfile", Tuning::default(), [0.6, 0.3], Load::Idle),
        measured(ends, "read-write", Tuning::default(), [1.0, 1.0], Load::Idle),
    ];
    let plan = |needs| chosen(&facts(ends, 1 << 40, needs), &Request::default(), &cells);
    assert_eq!(plan(Guarantees::SHARED), ("splice", pipe));
    // A faster method never replaces a required guarantee.
    assert_eq!(plan(Guarantees::COPIED).0, "read-write");
}
