//! The effect of a profile on the choice of a method, between processes and between files. Profiles may be missing,
//! broken or stale.

use std::{
    fs::{self, File},
    os::fd::AsFd,
};
use thalweg_core::{
    End, EndFacts, Kind, Profile, Tuning,
    profile::{Cell, Load, Ratio, SinkState},
};

use super::handovers::{LEN, Place, both};
use crate::support::{Scratch, bytes, run, thalweg};

fn measured(arm: &str, tuning: Tuning, ratio: f64) -> Cell {
    Cell {
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
        provisional: false,
    }
}

/// A measurement decides the choice. Without a measurement, the order of `thalweg list` decides.
#[test]
fn a_profile_that_knows_the_ways_between_processes_chooses_the_way() {
    let place = Place::new(LEN);
    let mut profile = Profile::new();
    profile.merge(vec![
        measured("ring", Tuning::default(), 1.0),
        measured("pipe", Tuning::default(), 0.9),
        measured("unix-stream", Tuning::of("piece", 64 << 10), 0.5),
        // A mechanism for studies is used only if it is named.
        measured("shm-locked", Tuning::default(), 0.1),
    ]);
    // Every user may write the scratch directory, so no profile is kept there.
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("profile.json");
    profile.save(&path).unwrap();
    let mut send = place.send(&["--json", "--as-bytes"]);
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
    for options in [&["--json", "--as-bytes", "--no-profile"][..], &["--json", "--method", "pipe"]]
    {
        let mut send = place.send(options);
        let (received, sent) = both(&mut place.receive(&[]), send.env("THALWEG_PROFILE", &path));
        received.expect(0);
        let sent = sent.expect(0).json();
        assert_ne!(sent["mechanism"], "unix-stream");
        assert!(sent["choice"]["evidence"].is_null(), "{sent}");
    }
    let mut plan = thalweg();
    plan.args(["plan", "-v", "loan:", "process:"]).env("THALWEG_PROFILE", &path);
    // A narrow table would break the reason into two lines.
    let ran = run(plan.env("COLUMNS", "400")).expect(0);
    let plan = String::from_utf8_lossy(&ran.stdout);
    let line = "unix-seqpacket  no: used only with --method, because it exists for studies";
    assert!(plan.contains(line), "{plan}");
}

/// No mechanism can be as fast as this profile claims. thalweg therefore compares the mechanism with others during the
/// copy. If another mechanism is faster, thalweg saves this result for files of about the same size.
#[test]
fn a_mechanism_that_falls_behind_its_profile_is_compared_and_the_profile_learns_from_it() {
    let folder = Scratch::new();
    let [path, source, copied] = ["profile.json", "source", "copy"].map(|name| folder.join(name));
    bytes::write(&source, 7, 96 << 20);
    let file = File::open(&source).unwrap();
    let end = End { fd: file.as_fd(), kind: Kind::File, at: Some(0) };
    let facts = EndFacts::of(&end);
    let options = facts.options();
    let promises = |name: &str, ratio: f64| Cell {
        source: facts.key(),
        sink: facts.key(),
        options: [options.clone(), options.clone()],
        sink_state: SinkState::Fresh,
        size: 96 << 20,
        wall: Ratio { ratio, ..Ratio::ONE },
        ns_per_byte: 1e-6,
        ..measured(name, Tuning::default(), ratio)
    };
    let mut profile = Profile::new();
    profile.merge(vec![promises("splice", 0.1), promises("read-write", 1.0)]);
    profile.save(&path).unwrap();
    let mut copy = thalweg();
    copy.args(["copy", "--reflink=never", "--json"]).args([&source, &copied]);
    let account = run(copy.env("THALWEG_PROFILE", &path)).expect(0).json();
    bytes::expect(&copied, 7, 96 << 20);
    let looks = account["looks"].as_array().unwrap();
    assert_eq!(looks[0]["tried"][0]["mechanism"], "splice", "{account}");
    let lost = |look: &serde_json::Value| {
        look["tried"][0]["ratio"].is_number() && look["chosen"] != "splice"
    };
    // Each comparison replaces the result of the one before, because conditions may change.
    let last = looks.iter().rfind(|look| look["from_disk"] == false);
    let kept = Profile::load(&path).unwrap().unwrap();
    let has_learnt = kept.cells.iter().any(|cell| cell.provisional && cell.mechanism == "splice");
    assert_eq!(has_learnt, last.is_some_and(lost), "{account}");
    assert!(kept.cells.iter().filter(|cell| !cell.provisional).eq(profile.cells.iter()));
}

#[test]
fn a_profile_that_cannot_be_used_is_named_and_what_is_known_without_it_decides() {
    let place = Place::new(LEN);
    let path = place.scratch.join("profile.json");
    let sent = || {
        let mut send = place.send(&["--json", "-v", "--as-bytes"]);
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
        [("broken", b"{".to_vec(), "the profile is ignored"), ("stale", stale, "2.6.17")]
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
