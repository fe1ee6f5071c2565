use super::*;
use crate::stats::RatioVerdict;
use std::cell::RefCell;

fn contender(name: &str, script: &str, against: Option<usize>) -> ComparedCommand {
    ComparedCommand {
        name: name.to_owned(),
        words: ["sh", "-c", script].map(OsString::from).to_vec(),
        against,
        prepare: Vec::new(),
        check: Vec::new(),
    }
}

fn compared(
    contenders: &[ComparedCommand],
    with: impl Fn(&mut CompareJob<'_>),
) -> Result<CompareResult, CompareError> {
    let metric = RunMetric::parse("wall").unwrap();
    let mut compare = CompareJob {
        contenders,
        metric: &metric,
        rounds: Rounds::Fixed(5),
        warm_ups: 1,
        same_output: false,
        must_succeed: true,
        limit: Some(Duration::from_secs(30)),
        seed: 1,
        stop: &|| Ok(()),
        watch: &|_, _| {},
    };
    with(&mut compare);
    run(&compare)
}

#[test]
fn ten_times_the_time_is_slower_and_every_run_is_in_the_log() {
    let pair = [contender("a", "sleep 0.01", None), contender("b", "sleep 0.2", Some(0))];
    let told = RefCell::new(Vec::new());
    let watch = |done, all| told.borrow_mut().push((done, all));
    let metric = RunMetric::parse("wall").unwrap();
    let found = run(&CompareJob {
        contenders: &pair,
        metric: &metric,
        rounds: Rounds::Fixed(5),
        warm_ups: 1,
        same_output: false,
        must_succeed: true,
        limit: None,
        seed: 1,
        stop: &|| Ok(()),
        watch: &watch,
    })
    .unwrap();
    let judged = found.rows[1].judged();
    assert_eq!((judged.metric.as_str(), judged.verdict), ("wall", Some(RatioVerdict::Slower)));
    assert!(judged.ratio.unwrap().ratio > 2.0, "{judged:?}");
    assert_eq!(found.rows[0].judged().ratio, None);
    assert_eq!(found.rows[0].runs + found.rows[1].runs, 15);
    assert_eq!(told.borrow().last(), Some(&(15, 15)));
}

#[test]
fn a_command_that_fails_is_named_and_the_others_go_on() {
    let three = [
        contender("good", "true", None),
        contender("bad", "echo broken >&2; exit 3", Some(0)),
        contender("other", "true", Some(0)),
    ];
    let found = compared(&three, |_| {}).unwrap();
    let failed = found.rows[1].failed.as_deref().unwrap();
    assert!(failed.contains("exit status: 3") && failed.contains("broken"), "{failed}");
    assert!(found.rows[1].judged().verdict.is_none());
    assert!(found.rows[2].judged().verdict.is_some());
    let found = compared(&three, |compare| compare.must_succeed = false).unwrap();
    assert!(found.rows[1].failed.is_none());
    let alone = &three[1..2];
    let error = compared(alone, |_| {}).unwrap_err();
    assert!(matches!(&error, CompareError::Failed(why) if why.contains("broken")), "{error}");
}

#[test]
fn outputs_that_differ_are_found_at_their_byte() {
    let pair =
        [contender("a", "printf 'one\ntwo'", None), contender("b", "printf 'one\nTwo'", Some(0))];
    assert!(compared(&pair, |_| {}).unwrap().rows[1].failed.is_none());
    let found = compared(&pair, |compare| compare.same_output = true).unwrap();
    let failed = found.rows[1].failed.as_deref().unwrap();
    assert!(failed.contains("differs from the first output at byte 5"), "{failed}");
    let shorter = [contender("a", "echo 12", None), contender("b", "printf 12", Some(0))];
    let found = compared(&shorter, |compare| compare.same_output = true).unwrap();
    assert!(found.rows[1].failed.as_deref().unwrap().contains("at byte 3"));
}

#[test]
fn what_comes_before_and_after_is_run_each_time_and_must_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let words = |text: String| ["sh", "-c", &text].map(OsString::from).to_vec();
    let mut one = contender("one", &format!("test -e {}", path("made")), None);
    one.prepare = words(format!("echo >> {0}", path("made")));
    one.check = words(format!("echo >> {0}", path("checked")));
    compared(std::slice::from_ref(&one), |_| {}).unwrap();
    let lines = |name| fs::read_to_string(path(name)).unwrap().lines().count();
    // One warm-up run, and five rounds with two runs of the command each.
    assert_eq!((lines("made"), lines("checked")), (11, 11));
    one.check = words("exit 1".to_owned());
    let error = compared(&[one], |_| {}).unwrap_err().to_string();
    assert!(error.contains("--check failed"), "{error}");
}

#[test]
fn a_command_that_is_not_there_is_an_error_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let mut pair =
        [contender("a", &format!("touch {}", mark.display()), None), contender("b", "", Some(0))];
    pair[1].words = vec!["no-such-command-here".into()];
    let error = compared(&pair, |_| {}).unwrap_err();
    assert!(
        matches!(&error, CompareError::NoProgram { name, .. } if name == "no-such-command-here")
    );
    assert!(!mark.exists());
}

#[test]
fn rounds_follow_the_slowest_command_within_bounds() {
    let number = |longest| Rounds::AtLeast(Duration::from_secs(3)).number(longest);
    assert_eq!(number(Duration::from_millis(30)), 100);
    assert_eq!(number(Duration::from_secs(60)), LEAST_ROUNDS);
    assert_eq!(number(Duration::ZERO), MOST_ROUNDS);
    assert_eq!(Rounds::Fixed(7).number(Duration::from_secs(9)), 7);
}
