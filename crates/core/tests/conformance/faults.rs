//! Injects faults: every call of a mechanism returns a short count, 0, EINTR or another errno. No byte may be lost,
//! changed or counted twice.

use thalweg_core::{Error, Kind, Mechanism, Side, Tuning, Unit};
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};

use crate::case::{Ask, Case, Done, movers};
use thalweg_testing::Sample;

/// Number of bytes. No call moves more than `CUT` bytes, so every mechanism makes several calls.
const SIZE: usize = 300_001;
const CUT: usize = 64 << 10;

const REFUSALS: [Errno; 17] = [
    Errno::NOSYS,
    Errno::OPNOTSUPP,
    Errno::INVAL,
    Errno::XDEV,
    Errno::PERM,
    Errno::ACCESS,
    Errno::BADF,
    Errno::TXTBSY,
    Errno::NOTTY,
    Errno::FBIG,
    Errno::NOMEM,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOBUFS,
    Errno::SPIPE,
    Errno::NODEV,
    Errno::FAULT,
];
const FAILURES: [Errno; 3] = [Errno::IO, Errno::NOSPC, Errno::DQUOT];

/// The calls of the last resort. Their errors end the transfer.
const PLAIN: [Call; 4] = [Call::Read, Call::Pread, Call::Write, Call::Pwrite];

#[test]
fn the_refusals_tried_are_those_the_driver_steps_down_on() {
    for errno in REFUSALS {
        let error = Error { mechanism: "", call: "", errno, side: Side::Either, moved: 0 };
        assert!(error.is_refusal(), "{errno}");
    }
}

/// Returns the tuning with the smallest buffers and windows, so that a transfer needs several of them.
fn smallest(mechanism: &dyn Mechanism) -> Tuning {
    let knobs = mechanism.info().knobs.iter().filter(|knob| knob.unit == Unit::Bytes);
    knobs.fold(Tuning::default(), |tuning, knob| {
        let least = knob.values.iter().min().expect("a knob has values");
        tuning.with(knob.name, *least)
    })
}

/// Returns a script with these rules, in which every other call moves at most `CUT` bytes.
fn script(mut rules: Vec<Rule>) -> Script {
    let counted = Call::ALL.into_iter().filter(|call| call.counts_bytes());
    rules.extend(counted.map(|call| Rule::always(call, Effect::Short(CUT))));
    Script::new(rules)
}

/// Calls `of` for every case of every mechanism, with each system call that the case makes. `make test` runs a third of
/// these combinations, chosen at random.
fn each_call(of: impl Fn(&Case, Call) + Sync) {
    std::thread::scope(|scope| {
        for mechanism in movers() {
            let of = &of;
            scope.spawn(move || {
                let mut sample = Sample::new(mechanism.info().name, 3);
                for pair in mechanism.info().pairs {
                    let folder = std::env::temp_dir();
                    let Some(case) = Case::fitting(mechanism, *pair, folder) else { continue };
                    let file = case.pair.source == Kind::File;
                    let big = Case { size: SIZE, ..case };
                    let small = Case {
                        tuning: smallest(mechanism),
                        ask: Ask::All,
                        source_at: 4097,
                        sink_at: 1,
                        ..big.clone()
                    };
                    let once = file.then(|| Case { once: true, ..small.clone() });
                    let turns = [big.by_turns(), small.by_turns()].into_iter().flatten();
                    let turns: Vec<_> = turns.collect();
                    let cases = [big, small].into_iter().chain(once).chain(turns);
                    for case in cases.flat_map(|case| case.in_both_forms().collect::<Vec<_>>()) {
                        let calls = case.run(&script(Vec::new())).calls;
                        for call in Call::ALL.into_iter().filter(|call| calls[*call] > 0) {
                            if sample.takes() {
                                of(&case, call);
                            }
                        }
                    }
                }
            });
        }
    });
}

fn whole(case: &Case, done: &Done, what: &str) {
    let (outcome, name) = (&done.outcome, case.name());
    assert!(outcome.error.is_none(), "{what}: {name}: {outcome:?}");
    assert_eq!(outcome.report.bytes, done.due, "{what}: {name}: {outcome:?}");
}

#[test]
fn short_counts_lose_nothing() {
    each_call(|case, call| {
        let rules = [
            vec![Rule::once(call, 1, Effect::Short(1))],
            vec![Rule::once(call, 3, Effect::Short(1))],
            vec![Rule::always(call, Effect::Short(4095))],
        ];
        for rules in rules {
            let what = format!("{rules:?}");
            let done = case.run(&script(rules));
            whole(case, &done, &what);
            // Short counts cause no fallback. Only an errno that this machine's kernel returned may cause one.
            for step in &done.outcome.report.steps_down {
                assert!(!step.errno.is_empty(), "{what}: {}: {step:?}", case.name());
            }
        }
    });
}

#[test]
fn an_interruption_or_a_wait_costs_only_time() {
    each_call(|case, call| {
        for (errno, nth) in
            [(Errno::INTR, 1), (Errno::INTR, 3), (Errno::AGAIN, 1), (Errno::AGAIN, 3)]
        {
            // The kernel does not return EINTR or EAGAIN for calls that move no bytes, because they do not wait.
            if !call.counts_bytes() {
                continue;
            }
            let what = format!("{} {errno} at {nth}", call.name());
            let done = case.run(&script(vec![Rule::once(call, nth, Effect::Errno(errno))]));
            whole(case, &done, &what);
            let steps = &done.outcome.report.steps_down;
            assert!(
                steps.iter().all(|step| step.errno != "EINTR" && step.errno != "EAGAIN"),
                "{what}: {}: {steps:?}",
                case.name()
            );
        }
    });
}

#[test]
fn a_cancelled_transfer_reports_exactly_how_far_it_came() {
    each_call(|case, call| {
        for nth in [1, 3] {
            let case = Case { stop: true, ..case.clone() };
            let script = script(vec![Rule::once(call, nth, Effect::Errno(Errno::INTR))]);
            // `run` checks the result.
            case.run(&script);
        }
    });
}

#[test]
fn a_zero_is_the_end_only_when_a_read_says_so() {
    each_call(|case, call| {
        for nth in [1, 3] {
            let done = case.run(&script(vec![Rule::once(call, nth, Effect::Zero)]));
            // A read that returns 0 is the end of the source. A write that returns 0 is an error.
            if PLAIN.contains(&call) {
                let error = done.outcome.error.map(|error| error.errno);
                assert!(matches!(error, None | Some(Errno::IO)), "{}: {error:?}", case.name());
                continue;
            }
            whole(case, &done, &format!("{} 0 at {nth}", call.name()));
        }
    });
}

/// Injects one fault. After it, the driver continues with plain calls, unless the failed call was itself a plain one.
fn once(case: &Case, call: Call, errno: Errno, nth: u64) {
    let done = case.run(&script(vec![Rule::once(call, nth, Effect::Errno(errno))]));
    let what = format!("{} {errno} at {nth}", call.name());
    match done.outcome.error {
        Some(error) if PLAIN.contains(&call) => {
            assert_eq!(error.errno, errno, "{what}: {}", case.name());
        }
        _ => whole(case, &done, &what),
    }
    // The report must mention the failure, unless the mechanism could continue after it.
    let mut moved = done.outcome.report.shares.iter().map(|share| share.mechanism);
    let alone = moved.all(|name| case.may_move(name));
    let said = !done.outcome.report.steps_down.is_empty() || done.outcome.error.is_some();
    assert!(alone || said, "{what}: {}: {:?}", case.name(), done.outcome);
}

#[test]
fn a_refusal_at_any_call_steps_down_at_the_byte_reached() {
    each_call(|case, call| {
        for errno in REFUSALS {
            once(case, call, errno, 1);
            once(case, call, errno, 3);
        }
    });
}

#[test]
fn a_failure_that_a_plain_call_does_not_repeat_is_no_failure() {
    each_call(|case, call| {
        for errno in FAILURES {
            once(case, call, errno, 1);
            once(case, call, errno, 3);
        }
    });
}

#[test]
fn a_lasting_failure_is_reported_with_its_errno_and_the_true_prefix() {
    each_call(|case, call| {
        for errno in FAILURES {
            for nth in [1, 3] {
                let lasts = |call, nth| Rule { nth, repeat: true, ..fault(call, errno) };
                let rules = vec![lasts(call, nth), lasts(Call::Write, 1), lasts(Call::Pwrite, 1)];
                let done = case.run(&script(rules));
                let (outcome, name) = (&done.outcome, case.name());
                match &outcome.error {
                    Some(error) => assert_eq!(error.errno, errno, "{name}: {outcome:?}"),
                    // The fault may not occur: a memory sink needs no call, and a transfer may need fewer than three.
                    None => assert_eq!(outcome.report.bytes, done.due, "{name}: {outcome:?}"),
                }
                let plain = matches!(case.pair.sink, Kind::Memory);
                let early = nth == 1 && !plain && done.due > 0;
                assert!(!early || outcome.error.is_some(), "{name} went on: {outcome:?}");
            }
        }
    });
}

fn fault(call: Call, errno: Errno) -> Rule {
    Rule::once(call, 1, Effect::Errno(errno))
}
