//! Faults of `accept` and `epoll_wait`: the server serves every client and closes all descriptors, and a worker
//! that cannot accept does not spin.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use thalweg_serve::server::ListenAddress;
use thalweg_sys::{
    Errno,
    fault::{Call, CallCounts, Effect, Rule, Script, ScriptRun},
};

use thalweg_testing::open_files;

use crate::serving::{Client, TestSite};

const REQUEST: &str = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
/// Timeout of a test. No test asserts a shorter time.
const GUARD: Duration = Duration::from_secs(60);

/// Runs `run`, and waits until all files that it opened are closed.
fn leaves_nothing_open<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let before = open_files();
    let value = run();
    let began = Instant::now();
    loop {
        let mut left = open_files();
        left.retain(|file| !before.contains(file));
        if left.is_empty() {
            return value;
        }
        assert!(began.elapsed() < GUARD, "{what}: {left:?} are open");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Serves three clients under these fault rules. Each client sends two requests. Then all descriptors must be
/// closed.
fn serves_three(rules: Vec<Rule>, what: &str) -> ScriptRun<()> {
    let serve = || {
        let place = TestSite::with(|options| (options.threads, options.metrics) = (Some(1), true));
        place.file("file", "text");
        let mut clients: Vec<Client> = (0..3).map(|_| place.connect()).collect();
        for _ in 0..2 {
            for client in &mut clients {
                client.send(REQUEST);
            }
            for client in &mut clients {
                assert_eq!(client.answer(false).text(), "text", "{what}");
            }
        }
        drop(clients);
        // The only connection left is that of the metrics request.
        place.counts(|page| page.lines().any(|line| line == "thalweg_connections 1"));
    };
    leaves_nothing_open(what, || Script::new(rules).run(serve))
}

#[test]
fn a_client_that_is_gone_before_it_is_taken_costs_the_others_nothing() {
    let _alone = thalweg_testing::alone();
    for errno in [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
    ] {
        for nth in 1..=4 {
            let rule = Rule::once(Call::Accept, nth, Effect::Errno(errno));
            let what = format!("{errno:?} at {nth}");
            assert_eq!(serves_three(vec![rule], &what).fired, 1, "{what}");
        }
    }
}

#[test]
fn a_client_without_resources_waits_and_is_served() {
    let _alone = thalweg_testing::alone();
    let often = [Errno::MFILE, Errno::NOBUFS];
    let often = often.into_iter().flat_map(|errno| (1..=4).map(move |nth| (errno, nth)));
    // Errors that are not handled separately must not make the worker spin either.
    let once = [Errno::NFILE, Errno::NOMEM, Errno::PERM, Errno::INVAL].map(|errno| (errno, 2));
    for (errno, nth) in often.chain(once) {
        let rule = Rule::once(Call::Accept, nth, Effect::Errno(errno));
        let what = format!("{errno:?} at {nth}");
        assert_eq!(serves_three(vec![rule], &what).fired, 1, "{what}");
    }
}

#[test]
fn waiting_that_is_interrupted_or_reports_few_events_loses_none() {
    let _alone = thalweg_testing::alone();
    for effect in [Effect::Errno(Errno::INTR), Effect::Zero, Effect::Short(1)] {
        let fired: u64 = (1..=8)
            .map(|nth| {
                let rule = Rule::once(Call::EpollWait, nth, effect);
                serves_three(vec![rule], &format!("{effect:?} at {nth}")).fired
            })
            .sum();
        // The number of `epoll_wait` calls depends on the number of events per call, so some rules may not fire.
        assert!(fired >= 3, "{effect:?}: {fired}");
    }
    let rule = Rule::always(Call::EpollWait, Effect::Short(1));
    assert!(serves_three(vec![rule], "one at a time").fired >= 3);
    let rules = (1..100).map(|n| Rule::once(Call::EpollWait, 2 * n, Effect::Errno(Errno::INTR)));
    assert!(serves_three(rules.collect(), "every other one").fired >= 2);
}

/// Returns the time until a client was served, and the calls. After a failed `accept`, a worker retries at its
/// next tick of one second. A worker that spins would retry at once.
fn is_rested_from(errno: Errno) -> (Duration, CallCounts) {
    const REFUSED: u64 = 4;
    let began = Instant::now();
    let rules = (1..=REFUSED).map(|nth| Rule::once(Call::Accept, nth, Effect::Errno(errno)));
    let outcome = Script::new(rules.collect()).run(|| {
        let place = TestSite::with(|options| options.threads = Some(1));
        place.file("file", "text");
        assert_eq!(place.get("/file", "").text(), "text");
        began.elapsed()
    });
    assert_eq!(outcome.fired, REFUSED);
    (outcome.value, outcome.calls)
}

#[test]
fn a_worker_that_can_accept_no_client_rests_and_tries_again() {
    let _alone = thalweg_testing::alone();
    for errno in [Errno::MFILE, Errno::NOBUFS, Errno::PERM] {
        let (took, calls) = is_rested_from(errno);
        // Of the four attempts, the first is immediate, and the second comes at the next tick, which may be near.
        assert!(took >= Duration::from_secs(2), "{errno:?}: {took:?}");
        let (accepts, waits) = (calls[Call::Accept], calls[Call::EpollWait]);
        assert!(accepts <= 8 && waits <= 200, "{errno:?}: {accepts} and {waits} calls");
    }
}

#[test]
fn at_a_socket_of_two_workers_one_that_can_accept_no_client_blocks_none() {
    let _alone = thalweg_testing::alone();
    for nth in 1..=3 {
        let rule = Rule::once(Call::Accept, nth, Effect::Errno(Errno::MFILE));
        let serve = || {
            let folder = tempfile::tempdir().unwrap();
            let name = folder.path().join("socket");
            let place = TestSite::with(|options| {
                options.threads = Some(2);
                options.listen = vec![ListenAddress::Unix(name.clone())];
            });
            place.file("file", "text");
            let mut clients: Vec<UnixStream> =
                (0..4).map(|_| UnixStream::connect(&name).unwrap()).collect();
            for client in &mut clients {
                client.set_read_timeout(Some(GUARD)).unwrap();
                client.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                assert!(answer.ends_with("\r\n\r\ntext"), "{answer}");
            }
        };
        let what = format!("at {nth}");
        let outcome = leaves_nothing_open(&what, || Script::new(vec![rule]).run(serve));
        assert_eq!(outcome.fired, 1);
    }
}
