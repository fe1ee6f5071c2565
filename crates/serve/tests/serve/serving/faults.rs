//! System calls that move fewer bytes or fail: every byte arrives, or the answer ends incomplete.

use thalweg_core::Guarantees;
use thalweg_sys::{
    Errno,
    fault::{Call, Effect, Rule, Script},
};

use super::support::{RawAnswer, TestSite, noise};

const SIZE: usize = 1 << 20;

/// Fetches a large file by one mechanism from a server under these fault rules.
fn under(rules: Vec<Rule>, method: &str) -> (RawAnswer, u64) {
    let outcome = Script::new(rules).run(|| {
        // The workers of the server inherit the rules. The calls of the client are not affected.
        let place = TestSite::with(|options| {
            options.threads = Some(1);
            options.needs = Guarantees::SHARED;
            options.request.only = Some(method.to_owned());
        });
        place.file("large", noise(SIZE));
        place.get("/large", "")
    });
    (outcome.value, outcome.fired)
}

#[test]
fn short_calls_lose_no_byte() {
    for (method, calls) in [
        ("read-write", &[Call::Pread, Call::Write][..]),
        ("sendfile", &[Call::Sendfile, Call::Write]),
        ("splice", &[Call::Splice, Call::Write]),
    ] {
        for call in calls {
            let (answer, fired) = under(vec![Rule::always(*call, Effect::Short(1021))], method);
            assert!(
                fired > 0 && answer.is_whole && answer.body == noise(SIZE),
                "{method}, {call:?}"
            );
        }
    }
}

#[test]
fn what_is_refused_under_way_is_gone_on_with_by_another() {
    for (method, call) in [("sendfile", Call::Sendfile), ("splice", Call::Splice)] {
        for nth in 1..4 {
            for errno in [Errno::INVAL, Errno::INTR, Errno::OPNOTSUPP] {
                let rules = vec![
                    Rule::always(call, Effect::Short(100_000)),
                    Rule::once(call, nth, Effect::Errno(errno)),
                ];
                let rules = rules.into_iter().rev().collect();
                let (answer, fired) = under(rules, method);
                assert!(fired > 0 && answer.is_whole, "{method}, {errno:?} at {nth}");
                assert!(answer.body == noise(SIZE), "{method}, {errno:?} at {nth}");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_cut_short() {
    for nth in 1..4 {
        let rule = Rule { call: Call::Pread, nth, effect: Effect::Errno(Errno::IO), repeat: true };
        let (answer, fired) = under(vec![rule], "read-write");
        assert!(fired > 0 && answer.status == 200 && !answer.is_whole, "{nth}");
        let rule = Rule { call: Call::Pread, nth, effect: Effect::Zero, repeat: true };
        let (answer, fired) = under(vec![rule], "read-write");
        assert!(fired > 0 && answer.status == 200 && !answer.is_whole, "{nth}");
    }
}
