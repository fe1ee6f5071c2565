//! Tests a fleet in steps: one worker creates the plan, others do some tasks each, and one finishes the tree.

use crate::support;

use std::{fs, path::Path, time::Duration};
use support::{names, noise, walk};
use thalweg_tree::{
    CopyOptions, Error, Refusal,
    fleet::{Duty, FleetEnd, FleetReport, Member, begin, left, status, stop, work},
};

const LONG: Duration = Duration::from_secs(1000);

fn options() -> CopyOptions {
    CopyOptions { jobs: 2, ..CopyOptions::archive() }
}

/// Creates 22 files for about 30 tasks, and a second name of one of them.
fn sample(place: &Path) {
    let src = place.join("src");
    fs::create_dir_all(src.join("sub")).unwrap();
    for n in 0..20 {
        fs::write(src.join(format!("sub/small{n}")), noise(40_000 + n, n as u64)).unwrap();
    }
    for n in 0..2 {
        fs::write(src.join(format!("large{n}")), noise(700_000 + n, n as u64)).unwrap();
    }
    fs::hard_link(src.join("sub/small0"), src.join("again")).unwrap();
}

fn does(place: &Path, duty: Duty, began: Option<u64>) -> Result<FleetReport, Error> {
    let member = Member { duty, began, task_bytes: 64 << 10, ..Member::new(0, 1, Duration::ZERO) };
    work(&place.join("src"), &place.join("dst"), &options(), &member, &())
}

fn plan(place: &Path) -> u64 {
    let planned = does(place, Duty::Plan, None).unwrap();
    assert_eq!((planned.end, planned.done), (FleetEnd::Unfinished, 0));
    assert!(planned.tasks > 15);
    planned.plan
}

fn journals(place: &Path) -> usize {
    let names = names(&place.join(".dst.thalweg-fleet"));
    names.iter().filter(|name| name.starts_with("journal.")).count()
}

#[test]
fn a_worker_that_returns_continues_its_journal_and_all_its_work_is_reported() {
    let place = support::scratch();
    let place = place.path();
    sample(place);
    let plan = plan(place);
    let (mut parts, mut done, mut bytes) = (0, 0, 0);
    loop {
        let within = if parts % 3 == 0 { Duration::ZERO } else { Duration::from_micros(100) };
        let report = does(place, Duty::Move { plan, within }, Some(7)).unwrap();
        (parts, done, bytes) = (parts + 1, done + report.done, bytes + report.tree.bytes);
        assert!(!within.is_zero() || report.done == 0);
        assert_eq!(journals(place), 1);
        if report.end == FleetEnd::Others {
            break;
        }
        assert_eq!(report.end, FleetEnd::Unfinished);
        assert_eq!(does(place, Duty::Finish, None).unwrap().end, FleetEnd::Unfinished);
    }
    assert!(parts > 2 && !place.join("dst").exists());
    let report = does(place, Duty::Finish, None).unwrap();
    assert_eq!((report.end, report.files), (FleetEnd::Finished, 22));
    let [worker] = &report.workers[..] else { panic!("{:?}", report.workers) };
    assert!(worker.ended);
    assert_eq!((worker.tasks, worker.bytes), (done, bytes));
    assert_eq!(worker.mechanisms.iter().map(|moved| moved.bytes).sum::<u64>(), bytes);
    assert!(walk(&place.join("src")) == walk(&place.join("dst")));
    assert_eq!(names(place), ["dst", "src"]);
    let late = does(place, Duty::Move { plan, within: LONG }, Some(7)).unwrap();
    assert_eq!(late.end, FleetEnd::There);
    assert_eq!(names(place), ["dst", "src"]);
}

#[test]
fn a_worker_that_returns_fills_up_its_incomplete_line() {
    let place = support::scratch();
    let place = place.path();
    sample(place);
    let plan = plan(place);
    does(place, Duty::Move { plan, within: Duration::ZERO }, Some(7)).unwrap();
    let folder = place.join(".dst.thalweg-fleet");
    let names = names(&folder);
    let journal = names.iter().find(|name| name.starts_with("journal.")).unwrap();
    fs::write(folder.join(journal), "00000001 00").unwrap();
    let report = does(place, Duty::Move { plan, within: LONG }, Some(7)).unwrap();
    assert_eq!((report.end, report.done), (FleetEnd::Others, report.tasks));
    assert_eq!(status(&place.join("dst")).unwrap().unwrap().done, report.tasks);
    assert_eq!(does(place, Duty::Finish, None).unwrap().end, FleetEnd::Finished);
    assert!(walk(&place.join("src")) == walk(&place.join("dst")));
}

#[test]
fn workers_make_no_fleet_and_take_part_in_no_other() {
    let place = support::scratch();
    let place = place.path();
    sample(place);
    let refused = |plan| match does(place, Duty::Move { plan, within: LONG }, None) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(1), Refusal::NoFleet);
    assert_eq!(names(place), ["src"]);
    let folder = begin(&place.join("src"), &place.join("dst")).unwrap().unwrap();
    assert_eq!(folder, place.join(".dst.thalweg-fleet"));
    assert_eq!(refused(1), Refusal::NoPlanYet);
    let plan = plan(place);
    assert!(matches!(refused(plan ^ 1), Refusal::NoPlan(_)));
    assert_eq!(status(&place.join("dst")).unwrap().unwrap().workers.len(), 0);
}

#[test]
fn a_supervisor_stops_a_fleet_and_reports_the_rest() {
    let place = support::scratch();
    let place = place.path();
    sample(place);
    let dst = place.join("dst");
    let plan = plan(place);
    let all = left(&dst, 100).unwrap();
    assert_eq!(all.len(), 21, "without the two names of one file: {all:?}");
    assert!(all.contains(&"large1".into()) && all.contains(&"sub/small19".into()));
    assert_eq!(left(&dst, 5).unwrap().len(), 5);
    stop(&dst).unwrap();
    let stopped = does(place, Duty::Move { plan, within: LONG }, None).unwrap();
    assert_eq!((stopped.end, stopped.done), (FleetEnd::Unfinished, 0));
    // After `stop`, workers can continue once a worker with the duty `Plan` has run.
    assert_eq!(does(place, Duty::Plan, None).unwrap().plan, plan);
    let report = does(place, Duty::Move { plan, within: LONG }, None).unwrap();
    assert_eq!(report.end, FleetEnd::Others);
    let known = status(&dst).unwrap().unwrap();
    assert_eq!((known.done, known.done_files), (known.tasks, 19));
    assert!(left(&dst, 100).unwrap().is_empty());
    assert_eq!(does(place, Duty::All, None).unwrap().end, FleetEnd::Finished);
    stop(&dst).unwrap();
    assert!(left(&dst, 100).unwrap().is_empty());
    assert!(walk(&place.join("src")) == walk(&dst));
}
