//! Runs the engine as steps that never sleep. The only thread of the test also serves the other side of every endpoint.
//! A step that slept would therefore hang.

use std::{
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use thalweg_core::{
    Facts, Judgement, Kind, Outcome, Plan, Request, Side, Step, Transfer, TransferRun, Tuning,
};

use crate::{
    case::{movers, plan_of},
    ends::Hand,
};

/// The other sides of those endpoints of a transfer that are pipes or sockets.
pub struct Hands<'a> {
    pub feeding: Option<&'a mut Hand>,
    pub taking: Option<&'a mut Hand>,
}

/// Bytes that a hand moves in one turn: less than a page, a little more than a page, and several pages.
const FEW: [usize; 3] = [77, 4099, 30_000];
/// A time that no machine needs for a turn.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Drives a transfer like an event loop. The test serves an endpoint only when the engine reports that endpoint as
/// blocked. A wrong report would therefore stop the transfer.
pub fn step_through(
    transfer: Transfer<'_>,
    plan: &Plan,
    mut hands: Hands<'_>,
    stop: bool,
    name: &str,
) -> Outcome {
    let (_awake, watched) = mpsc::channel::<()>();
    let text = name.to_owned();
    thread::spawn(move || {
        if watched.recv_timeout(2 * FOR_EVER) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a step sleeps: {text}");
            std::process::abort();
        }
    });
    let mut run = TransferRun::start(transfer, plan).unwrap();
    let (mut furthest, mut since) = (0, Instant::now());
    for turn in 0.. {
        let few = FEW[turn % FEW.len()];
        match (run.advance(50_001), &mut hands) {
            (Step::Done | Step::Failed(_), _) => break,
            (Step::Blocked(Side::Source), Hands { feeding: Some(hand), .. }) => hand.feed(few),
            (Step::Blocked(Side::Sink), Hands { taking: Some(hand), .. }) => hand.take(few),
            // A device blocks only if a fault is injected. The next call succeeds.
            (Step::Moved | Step::Blocked(_), _) => {}
        }
        if stop {
            break;
        }
        if run.bytes() > furthest {
            (furthest, since) = (run.bytes(), Instant::now());
        }
        assert!(since.elapsed() < FOR_EVER, "no way on: {name}");
    }
    run.end()
}

#[test]
fn a_mechanism_that_waits_inside_a_step_is_left_out_with_the_reason() {
    let (source, (sink, _far)) = (tempfile::tempfile().unwrap(), UnixStream::pair().unwrap());
    sink.set_nonblocking(true).unwrap();
    let request = Request { stepwise: true, ..Request::default() };
    for mechanism in movers() {
        let info = mechanism.info();
        let Some(why) = info.nature.waits else { continue };
        let transfer = Transfer::between(&source, &sink).unwrap();
        let facts = Facts { needs: thalweg_core::Guarantees::SHARED, ..Facts::of(&transfer) };
        let plan = Plan::make(&facts, &request, None);
        let verdict = plan.verdicts.iter().find(|v| v.mechanism == info.name).unwrap();
        let told = Judgement::Unfit { reason: why.to_owned() };
        assert!(info.pair(Kind::File, Kind::Socket).is_none() || verdict.judgement == told);
        // The plan was not made for steps, so it contains the mechanism. The run must not use it.
        let plan = plan_of(mechanism, &Tuning::default());
        let mut run = TransferRun::start(transfer, &plan).unwrap();
        assert!(matches!(run.advance(1), Step::Done));
        assert!(matches!(run.advance(1), Step::Done), "it says so again");
        let report = run.end().into_result().unwrap();
        assert_eq!((report.steps_down[0].from, &*report.steps_down[0].reason), (info.name, why));
        assert!(report.shares.iter().all(|share| share.mechanism != info.name));
    }
}

#[test]
fn ends_that_could_make_a_step_wait_are_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    let refused = |transfer: Transfer<'_>| {
        let plan = Plan::unmeasured(&Facts::of(&transfer));
        TransferRun::start(transfer, &plan).err().map(|unfit| unfit.reason)
    };
    let reason = refused(Transfer::between(&reader, &file).unwrap()).unwrap();
    assert!(reason.contains("source is a pipe without O_NONBLOCK"), "{reason}");
    let reason = refused(Transfer::between(&file, &writer).unwrap()).unwrap();
    assert!(reason.contains("sink is a pipe without O_NONBLOCK"), "{reason}");
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    assert_eq!(refused(Transfer::between(&file, &writer).unwrap()), None);
}
