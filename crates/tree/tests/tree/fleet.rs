//! Tests trees that several workers copy. The workers are threads of one process, but they share only the two trees.
//! The trees are compared by a walker that shares no code with the copier.

use crate::support;

use proptest::prelude::*;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use support::{
    names, noise, problems,
    trees::{Node, build, name, node},
    walk,
};
use thalweg_core::Cancelled;
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};
use thalweg_tree::{
    CopyOptions, Ending, Error, Event, Events, Fsync, Halt, Hash, When,
    fleet::{
        FleetEnd, FleetPhase, FleetReport, Member, line::JournalLine, plan::FleetPlan,
        plan::FleetTask, status, work,
    },
};

/// Number of bytes of a task. It is small enough to split files of some hundred thousand bytes.
const TASK: u64 = 64 << 10;

fn member(rank: u32, size: u32) -> Member {
    Member { task_bytes: TASK, ..Member::new(rank, size, Duration::from_secs(100)) }
}

fn options() -> CopyOptions {
    CopyOptions { jobs: 2, ..CopyOptions::archive() }
}

fn one(place: &Path, options: &CopyOptions, events: &dyn Events) -> Result<FleetReport, Error> {
    work(&place.join("src"), &place.join("dst"), options, &member(0, 1), events)
}

/// Runs `size` workers concurrently.
fn fleet(place: &Path, options: &CopyOptions, size: u32) -> Vec<FleetReport> {
    let worker = |rank| {
        let worked =
            work(&place.join("src"), &place.join("dst"), options, &member(rank, size), &());
        worked.unwrap_or_else(|error| panic!("rank {rank}: {error}"))
    };
    let worker = &worker;
    thread::scope(|scope| {
        let all: Vec<_> = (0..size).map(|rank| scope.spawn(move || worker(rank))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Cancels a worker. Once the plan exists, `left` is the number of calls of `go_on` that still succeed.
struct Stops {
    plan: PathBuf,
    left: AtomicU64,
    changed: Mutex<Vec<PathBuf>>,
}

impl Stops {
    fn after(place: &Path, questions: u64) -> Self {
        let plan = place.join(".dst.thalweg-fleet/plan");
        Self { plan, left: AtomicU64::new(questions), changed: Mutex::default() }
    }
}

impl Events for Stops {
    fn event(&self, event: &Event<'_>) {
        if let Event::Changed { source } = event {
            self.changed.lock().unwrap().push((*source).to_owned());
        }
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        let spend = |left: u64| left.checked_sub(1);
        let is_spent =
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err();
        if self.plan.exists() && is_spent() { Err(Cancelled) } else { Ok(()) }
    }
}

/// Creates small files, large files, a file with holes, and links of both kinds.
fn sample(place: &Path) {
    let src = place.join("src");
    fs::create_dir_all(src.join("sub/deep")).unwrap();
    for n in 0..40 {
        fs::write(src.join(format!("sub/small{n}")), noise(5000 + n, n as u64)).unwrap();
    }
    for n in 0..4_usize {
        fs::write(src.join(format!("sub/deep/large{n}")), noise(300_000 + n, n as u64)).unwrap();
    }
    let holed = fs::File::create(src.join("holed")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holed, &noise(5000, 9), 1 << 20).unwrap();
    holed.set_len(3 << 20).unwrap();
    fs::hard_link(src.join("sub/small0"), src.join("again")).unwrap();
    std::os::unix::fs::symlink("sub", src.join("link")).unwrap();
}

#[track_caller]
fn expect_finished(place: &Path) {
    assert!(walk(&place.join("src")) == walk(&place.join("dst")));
    assert_eq!(names(place), ["dst", "src"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_tree_that_one_two_or_seven_workers_copy_equals_its_source(
        children in prop::collection::vec((name(), node()), 0..12),
        sparse in prop_oneof![Just(When::Auto), Just(When::Always), Just(When::Never)],
        verify in prop_oneof![Just(None), Just(Some(Hash::Xxh3))],
    ) {
        for size in [1, 2, 7] {
            let place = support::scratch();
            let root = Node::Dir { mode: 0o755, time: (1, 1), children: children.clone() };
            build(&place.path().join("src"), &root, &mut Vec::new());
            let options = CopyOptions { sparse, verify, ..options() };
            let reports = fleet(place.path(), &options, size);
            for report in &reports {
                prop_assert_eq!(report.tree.error_count, 0, "{}", problems(&report.tree));
                prop_assert_eq!(report.tree.changed, 0);
            }
            let ends: Vec<FleetEnd> = reports.iter().map(|report| report.end).collect();
            let finished = ends.iter().filter(|end| **end == FleetEnd::Finished).count();
            prop_assert_eq!(finished, 1, "{:?}", ends);
            prop_assert!(!ends.contains(&FleetEnd::Unfinished), "{:?}", ends);
            expect_finished(place.path());
        }
    }
}

#[test]
fn a_worker_that_was_stopped_is_followed_by_any_number_that_move_only_what_is_missing() {
    for (questions, size) in [(0, 1), (3, 2), (9, 3), (20, 1), (60, 7)] {
        let place = support::scratch();
        sample(place.path());
        let stopped =
            one(place.path(), &options(), &Stops::after(place.path(), questions)).unwrap();
        assert_eq!(stopped.tree.halted, Some(Halt::Cancelled), "{questions}");
        assert_eq!(names(place.path()), [".dst.thalweg-fleet", "src"]);
        let reports = fleet(place.path(), &options(), size);
        expect_finished(place.path());
        let noted: u64 = reports.iter().flat_map(|r| &r.workers).map(|w| w.tasks).sum();
        let done: u64 = reports.iter().map(|report| report.done).sum::<u64>() + stopped.done;
        // Two workers may have done one task. The second one may have recorded it after the finisher read the journals.
        assert!((stopped.tasks..=done).contains(&noted), "{noted} noted, {done} done: {stopped:?}");
    }
}

#[test]
fn a_source_that_changed_is_named_and_copied_as_it_is_and_the_rest_is_finished() {
    let place = support::scratch();
    sample(place.path());
    let src = place.path().join("src");
    one(place.path(), &options(), &Stops::after(place.path(), 30)).unwrap();
    fs::write(src.join("sub/small3"), "other").unwrap();
    fs::write(src.join("sub/deep/large1"), noise(300_001, 77)).unwrap();
    fs::remove_file(src.join("sub/small4")).unwrap();
    let listener = Stops::after(place.path(), u64::MAX);
    let report = one(place.path(), &options(), &listener).unwrap();
    let mut changed = listener.changed.into_inner().unwrap();
    changed.sort();
    let expected = ["sub/deep/large1", "sub/small3", "sub/small4"].map(|name| src.join(name));
    assert_eq!(changed, expected);
    assert_eq!((report.end, report.tree.changed), (FleetEnd::Finished, 3));
    assert_eq!((report.tree.ending(), report.tree.error_count), (Ending::Partial, 0));
    expect_finished(place.path());
}

#[test]
fn a_full_destination_stops_the_others_and_workers_that_are_started_again_go_on() {
    let place = support::scratch();
    sample(place.path());
    let calls = [Call::Write, Call::Pwrite, Call::CopyFileRange, Call::Sendfile, Call::Splice];
    let full = |call| Rule { call, nth: 12, effect: Effect::Errno(Errno::NOSPC), repeat: true };
    let run = || one(place.path(), &options(), &()).unwrap();
    let report = Script::new(calls.map(full).to_vec()).run(run).value;
    assert_eq!((report.end, report.tree.halted), (FleetEnd::Unfinished, Some(Halt::Full)));
    assert_eq!(names(place.path()), [".dst.thalweg-fleet", "src"]);
    let found = status(&place.path().join("dst")).unwrap().unwrap();
    assert_eq!(found.phase, FleetPhase::Full);
    assert!(found.done < found.tasks && found.done_bytes < found.bytes);
    fleet(place.path(), &options(), 2);
    expect_finished(place.path());
}

#[test]
fn every_failed_sync_ends_a_durable_fleet_and_the_next_one_starts_again() {
    let options = CopyOptions { jobs: 1, fsync: Fsync::Always, ..CopyOptions::archive() };
    let run = |place: &Path, rules| Script::new(rules).run(|| one(place, &options, &()));
    let whole = support::scratch();
    sample(whole.path());
    let calls = run(whole.path(), Vec::new()).calls;
    assert!(calls[Call::Fsync] > 2 && calls[Call::Syncfs] > 0, "{calls:?}");
    for call in [Call::Fsync, Call::Syncfs] {
        for nth in 1..=calls[call] {
            let place = support::scratch();
            sample(place.path());
            let rules = vec![Rule::once(call, nth, Effect::Errno(Errno::IO))];
            let said = match run(place.path(), rules).value {
                Ok(report) if report.end != FleetEnd::Finished => problems(&report.tree),
                Ok(report) => format!("{report:?}"),
                Err(error) => error.to_string(),
            };
            assert!(said.contains(": EIO)"), "{call:?} {nth}: {said}");
            assert!(
                !place.path().join("dst").exists(),
                "{call:?} {nth}: nothing says that it is on the disk"
            );
            assert_eq!(one(place.path(), &options, &()).unwrap().end, FleetEnd::Finished);
            expect_finished(place.path());
        }
    }
}

/// Returns the plan, which contains the values that a journal line needs.
fn plan(place: &Path) -> FleetPlan {
    FleetPlan::read(fs::File::open(place.join(".dst.thalweg-fleet/plan")).unwrap().into()).unwrap()
}

fn journal(place: &Path, name: &str, bytes: &[u8]) {
    let path = place.join(".dst.thalweg-fleet").join(name);
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

#[test]
fn a_journal_that_lies_is_found_out_by_verify() {
    for verify in [None, Some(Hash::Blake3)] {
        let place = support::scratch();
        sample(place.path());
        one(place.path(), &options(), &Stops::after(place.path(), 0)).unwrap();
        let plan = plan(place.path());
        for n in 0..plan.index.len() {
            let line = JournalLine { task: n as u32, bytes: 1, what: plan.index[n].hash, at: 0 };
            journal(place.path(), "journal.liar-1-9-1", &line.to_bytes(plan.id));
            // A large file has only a partial file of the right length, without data.
            if let FleetTask::Stretch { file, entry, .. } = plan.task(n).unwrap() {
                let part =
                    place.path().join(format!(".dst.thalweg-fleet/parts/{:x}-{file:x}", plan.id));
                fs::File::create(part).unwrap().set_len(entry.seen.size).unwrap();
            }
        }
        let report = one(place.path(), &CopyOptions { verify, ..options() }, &()).unwrap();
        assert_eq!((report.end, report.done), (FleetEnd::Finished, 0));
        if verify.is_some() {
            assert_eq!(report.tree.verified.again, 5, "four large ones, and one with a hole");
            expect_finished(place.path());
        } else {
            // Without verification, the finisher copies only the missing files, so the large files stay without data.
            let (src, dst) = (walk(&place.path().join("src")), walk(&place.path().join("dst")));
            let differ: Vec<_> = src.iter().filter(|(name, entry)| dst[*name] != **entry).collect();
            assert_eq!(differ.len(), 5);
        }
    }
}

#[test]
fn half_a_line_is_no_line_and_neither_is_one_of_another_plan() {
    let place = support::scratch();
    sample(place.path());
    one(place.path(), &options(), &Stops::after(place.path(), 0)).unwrap();
    let plan = plan(place.path());
    let line = JournalLine { task: 0, bytes: 1, what: plan.index[0].hash, at: 0 };
    journal(place.path(), "journal.torn-1-9-1", &line.to_bytes(plan.id)[..60]);
    journal(place.path(), "journal.other-1-9-1", &line.to_bytes(plan.id + 1));
    journal(place.path(), "journal.no-name", &line.to_bytes(plan.id));
    assert_eq!(status(&place.path().join("dst")).unwrap().unwrap().done, 0);
    let report = one(place.path(), &options(), &()).unwrap();
    assert_eq!((report.end, report.done), (FleetEnd::Finished, plan.index.len() as u64));
    expect_finished(place.path());
}

#[test]
fn a_plan_that_was_tampered_with_harms_nothing() {
    let place = support::scratch();
    sample(place.path());
    one(place.path(), &options(), &Stops::after(place.path(), 0)).unwrap();
    let path = place.path().join(".dst.thalweg-fleet/plan");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let worked = one(place.path(), &options(), &());
    let said = match worked {
        Err(error) => error.to_string(),
        Ok(report) => {
            assert_eq!(report.end, FleetEnd::Unfinished);
            problems(&report.tree)
        }
    };
    assert!(said.contains("not a valid plan of a sharded copy"), "{said}");
    assert!(!place.path().join("dst").exists());
}

#[test]
fn what_is_there_is_left_alone_unless_it_is_what_was_made() {
    let place = support::scratch();
    sample(place.path());
    fs::create_dir(place.path().join("dst")).unwrap();
    let error = one(place.path(), &options(), &()).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    assert_eq!(names(place.path()), ["dst", "src"]);
    fs::remove_dir(place.path().join("dst")).unwrap();
    one(place.path(), &options(), &()).unwrap();
    // This worker starts after the tree was published.
    let report = one(place.path(), &options(), &()).unwrap();
    assert_eq!((report.end, report.tree.bytes), (FleetEnd::There, 0));
    expect_finished(place.path());
}

#[test]
fn a_worker_that_sees_another_source_does_nothing() {
    let place = support::scratch();
    sample(place.path());
    one(place.path(), &options(), &Stops::after(place.path(), 0)).unwrap();
    fs::create_dir(place.path().join("empty")).unwrap();
    let empty = fs::File::open(place.path().join("empty")).unwrap();
    empty.set_modified(std::time::UNIX_EPOCH).unwrap();
    let (source, dst) = (place.path().join("empty"), place.path().join("dst"));
    let error = work(&source, &dst, &options(), &member(1, 2), &()).unwrap_err();
    assert!(error.to_string().contains("is not the directory that the plan in"), "{error}");
    assert_eq!(status(&dst).unwrap().unwrap().done, 0);
}

#[test]
fn a_worker_waits_for_the_plan_only_so_long() {
    let place = support::scratch();
    sample(place.path());
    let late = Member { wait: Duration::ZERO, ..member(1, 2) };
    let (src, dst) = (place.path().join("src"), place.path().join("dst"));
    let error = work(&src, &dst, &options(), &late, &()).unwrap_err().to_string();
    assert!(error.contains("rank 0"), "{error}");
    assert_eq!(status(&dst).unwrap().unwrap().phase, FleetPhase::Survey);
}

#[test]
fn options_that_are_not_those_of_an_archive_are_refused() {
    let place = support::scratch();
    sample(place.path());
    for options in [
        CopyOptions::default(),
        support::recursive(),
        CopyOptions { no_clobber: true, ..options() },
        CopyOptions { dry_run: true, ..options() },
        CopyOptions { inplace: true, ..options() },
    ] {
        assert!(matches!(one(place.path(), &options, &()), Err(Error::Usage(_))));
    }
    assert_eq!(names(place.path()), ["src"]);
}
