//! Trials of small programs. Nothing about speed is asserted here.

use super::*;
use std::cell::{Cell, RefCell};

struct Setup {
    kernels: Vec<String>,
    metric: RunMetric,
    server: Option<Server>,
    limit: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kernels: vec!["simple".to_owned()],
            metric: RunMetric::parse("wall").unwrap(),
            server: None,
            limit: Some(Duration::from_secs(60)),
        }
    }
}

fn words(command: &[&str]) -> Vec<OsString> {
    command.iter().map(OsString::from).collect()
}

fn tried(setup: &Setup, command: &[&str]) -> Result<TrialResult, TrialError> {
    run(&TrialJob {
        command: &words(command),
        server: setup.server.as_ref(),
        kernels: Some(&setup.kernels),
        bands: None,
        tunables: Tunables::These(Vec::new()),
        metric: &setup.metric,
        rounds: 3,
        limit: setup.limit,
        seed: 1,
        stop: &|| Ok(()),
        say: &|_| {},
    })
}

/// Returns `true` if this build can preload the object into programs; otherwise the test counts as skipped.
fn reached(test: &str) -> bool {
    let missing = thalweg_preload::object().err();
    if let Some(reason) = missing {
        thalweg_testing::skip(test, &format!("no LD_PRELOAD library: {reason}"));
    }
    missing.is_none()
}

#[test]
fn a_program_is_run_in_rounds_with_one_arm_twice() {
    if !reached("a_program_is_run_in_rounds_with_one_arm_twice") {
        return;
    }
    let found = tried(&Setup::default(), &["sh", "-c", "exit 0"]).unwrap();
    assert_eq!((found.rounds, found.rows.len()), (3, 3));
    let runs: usize = found.rows.iter().map(|row| row.runs).sum();
    assert_eq!(runs, 12);
    assert_eq!(found.rows[0].setting.kind, SettingKind::Plain);
    assert!(found.rows[1..].iter().all(|row| row.ratio.is_some() && row.effect.is_some()));
    let reached = found.reached.unwrap();
    assert!(reached.processes >= 1 && reached.calls > 0, "{reached:?}");
}

#[test]
fn a_program_that_dies_or_prints_no_number_is_an_error_with_its_words() {
    if !reached("a_program_that_dies_or_prints_no_number_is_an_error_with_its_words") {
        return;
    }
    let failure = |setup: &Setup, command: &[&str]| tried(setup, command).unwrap_err().to_string();
    let usual = Setup::default();
    let words = failure(&usual, &["sh", "-c", "echo first >&2; echo last >&2; exit 3"]);
    assert!(words.contains("exit status: 3: first | last"), "{words}");
    assert!(failure(&usual, &["sh", "-c", "kill -SEGV $$"]).contains("signal: 11"));
    let printed = Setup { metric: RunMetric::parse("regex:([0-9]+) per s").unwrap(), ..usual };
    assert!(failure(&printed, &["echo", "done"]).contains("nothing that matches"));
    let brief = Setup { limit: Some(Duration::from_millis(50)), ..Setup::default() };
    assert!(failure(&brief, &["sleep", "20"]).contains("still running after 0.05 s"));
}

#[test]
fn a_program_that_dies_under_a_kernel_alone_is_a_row_without_a_number() {
    if !reached("a_program_that_dies_under_a_kernel_alone_is_a_row_without_a_number") {
        return;
    }
    let found = tried(&Setup::default(), &["sh", "-c", "test -z \"$THALWEG_KERNEL\""]).unwrap();
    let row = &found.rows[2];
    assert!(row.failed.as_ref().unwrap().contains("exit status: 1"), "{row:?}");
    assert!(row.ratio.is_none() && row.effect.is_none() && row.value.is_none());
}

#[test]
fn nothing_to_try_is_said() {
    if !reached("nothing_to_try_is_said") {
        return;
    }
    let none = Setup { kernels: vec!["libc".to_owned(), "tuned".to_owned()], ..Setup::default() };
    let words = tried(&none, &["true"]).unwrap_err().to_string();
    assert!(words.contains("tuned: no sizes were measured"), "{words}");
}

#[test]
fn a_stop_ends_a_trial_and_its_program() {
    if !reached("a_stop_ends_a_trial_and_its_program") {
        return;
    }
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        if asked.get() > 5 { Err(Cancelled) } else { Ok(()) }
    };
    let said = RefCell::new(Vec::new());
    let ended = run(&TrialJob {
        command: &words(&["true"]),
        server: None,
        kernels: Some(&["simple".to_owned()]),
        bands: None,
        tunables: Tunables::These(Vec::new()),
        metric: &RunMetric::parse("cpu").unwrap(),
        rounds: 1000,
        limit: None,
        seed: 1,
        stop: &stop,
        say: &|line| said.borrow_mut().push(line.to_owned()),
    });
    assert!(matches!(ended, Err(TrialError::Cancelled(_))), "{ended:?}");
    assert!(said.borrow()[0].starts_with("3 variants, 1000 rounds"), "{said:?}");
}

#[test]
fn a_server_is_up_while_the_client_runs_and_gone_afterwards() {
    if !reached("a_server_is_up_while_the_client_runs_and_gone_afterwards") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("up");
    let sign = sign.to_str().unwrap();
    // The server empties its file when it receives SIGTERM, as a real server closes its port. The shell does this
    // without starting another program, which could take long on a busy machine.
    let serve = format!("trap ': > {sign}; exit 0' TERM; echo up > {sign}; sleep 600 & wait");
    let server = Server {
        command: words(&["sh", "-c", &serve]),
        ready: ServerReady::Command(words(&["test", "-s", sign])),
        within: Duration::from_secs(120),
    };
    let setup = Setup { server: Some(server), ..Setup::default() };
    let found = tried(&setup, &["test", "-s", sign]).unwrap();
    assert_eq!(found.rounds, 3);
    assert!(found.reached.unwrap().processes > 0);
    assert_eq!(std::fs::read(sign).unwrap(), b"");

    // A server that is ready before ours was started belongs to another process.
    std::fs::write(sign, "up").unwrap();
    let words = tried(&setup, &["true"]).unwrap_err().to_string();
    assert!(words.contains("another server would be measured"), "{words}");
}

#[test]
fn a_server_that_does_not_come_up_is_named_with_its_words() {
    if !reached("a_server_that_does_not_come_up_is_named_with_its_words") {
        return;
    }
    let failure = |serve: &str, within| {
        let ready = ServerReady::Command(words(&["false"]));
        let server = Server { command: words(&["sh", "-c", serve]), ready, within };
        let setup = Setup { server: Some(server), ..Setup::default() };
        tried(&setup, &["true"]).unwrap_err().to_string()
    };
    let long = Duration::from_secs(120);
    let died = failure("echo no port >&2; exit 5", long);
    assert!(died.contains("before it was ready") && died.contains("no port"), "{died}");
    let slow = failure("exec sleep 60", Duration::from_millis(200));
    assert!(slow.contains("not ready after 0.2 s"), "{slow}");
}
