//! `thalweg send` with a profile of the ways between two processes: measured, missing, broken, stale.

use std::fs;
use thalweg_core::{
    Profile, Tuning,
    profile::{Cell, Load, Ratio, SinkState},
};

use super::handovers::{LEN, Place, both};

/// What was measured decides, and where nothing was the list does.
#[test]
fn a_profile_that_knows_the_ways_between_processes_chooses_the_way() {
    let place = Place::new(LEN);
    let measured = |arm: &str, tuning: Tuning, ratio: f64| Cell {
        source: "process:loan".into(),
        sink: "process".into(),
        options: Default::default(),
        mechanism: arm.into(),
        tuning,
        size: 8 << 20,
        load: Load::Idle,
        sink_state: SinkState::Resident,
        wall: Ratio { ratio, ..Ratio::ONE },
        cpu: Ratio::ONE,
        noise: 0.03,
        ns_per_byte: 0.1,
        memory: None,
        sessions: 3,
        rounds: 10,
        at: "2026-11-22T00:00:00Z".into(),
    };
    let mut profile = Profile::new();
    profile.merge(vec![
        measured("ring", Tuning::default(), 1.0),
        measured("pipe", Tuning::default(), 0.9),
        measured("unix-stream", Tuning::of("piece", 64 << 10), 0.5),
    ]);
    let path = place.scratch.join("profile.json");
    profile.save(&path).unwrap();
    let mut send = place.send(&["--json"]);
    let (received, sent) = both(&mut place.receive(&[]), send.env("THALWEG_PROFILE", &path));
    received.expect(0);
    let sent = sent.expect(0).json();
    assert_eq!(
        (&sent["mechanism"], &sent["tuning"]["piece"]),
        (&"unix-stream".into(), &65536.into())
    );
    let choice = &sent["choice"];
    assert_eq!(
        (&choice["profile"]["state"], &choice["evidence"]["sessions"]),
        (&"current".into(), &3.into())
    );
    let why = choice["why"].as_str().unwrap();
    for words in ["measured 2026-11-22: 0.50x ring", "from lent memory into memory used before"] {
        assert!(why.contains(words), "{why}");
    }
    for options in [&["--json", "--no-profile"][..], &["--json", "--method", "pipe"]] {
        let mut send = place.send(options);
        let (received, sent) = both(&mut place.receive(&[]), send.env("THALWEG_PROFILE", &path));
        received.expect(0);
        let sent = sent.expect(0).json();
        assert_ne!(sent["mechanism"], "unix-stream");
        assert!(sent["choice"]["evidence"].is_null(), "{sent}");
    }
}

#[test]
fn a_profile_that_cannot_be_used_is_named_and_what_is_known_without_it_decides() {
    let place = Place::new(LEN);
    let path = place.scratch.join("profile.json");
    let sent = || {
        let mut send = place.send(&["--json", "-v"]);
        let (received, sent) = both(&mut place.receive(&[]), send.env("THALWEG_PROFILE", &path));
        received.expect(0);
        sent
    };
    let untuned = sent().expect(0).json();
    assert_eq!(untuned["choice"]["profile"]["state"], "absent");
    let mut stale = Profile::new();
    stale.machine.set("kernel", "2.6.17");
    let stale = serde_json::to_vec(&stale).unwrap();
    for (state, text, words) in
        [("broken", b"{".to_vec(), "going on without it"), ("stale", stale, "2.6.17")]
    {
        fs::write(&path, text).unwrap();
        let ran = sent().expect(0);
        ran.expect_said(words);
        ran.expect_said("not measured");
        let account = ran.json();
        assert_eq!(account["mechanism"], untuned["mechanism"], "{state}");
        assert_eq!(account["choice"]["profile"]["state"], state);
    }
}
