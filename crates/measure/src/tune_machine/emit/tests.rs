use super::*;
use thalweg_core::{
    Tuning,
    profile::{Cell, Ratio},
};

fn cell(way: (&str, Option<u64>), size: u64, ratio: f64) -> Cell {
    let ratio = Ratio { ratio, lo: ratio * 0.99, hi: ratio * 1.01 };
    Cell {
        source: "pipe".into(),
        sink: "pipe".into(),
        options: Default::default(),
        mechanism: way.0.into(),
        tuning: way.1.map_or_else(Tuning::default, |value| Tuning::of("pipe", value)),
        size,
        load: Load::Idle,
        sink_state: SinkState::Fresh,
        wall: ratio,
        cpu: ratio,
        noise: 0.03,
        ns_per_byte: 0.5,
        memory: None,
        sessions: 6,
        rounds: 60,
        at: "2026-11-21T00:00:00Z".into(),
        provisional: false,
    }
}

fn profile() -> Profile {
    let mut profile = Profile::new();
    for (size, ratio) in [(4096, 2.0), (65536, 1.5), (1 << 20, 0.5), (1 << 24, 0.4)] {
        profile.merge(vec![
            cell(("read-write", None), size, 1.0),
            cell(("splice", Some(65536)), size, ratio),
        ]);
    }
    profile
}

fn as_json(profile: &Profile) -> serde_json::Value {
    serde_json::from_str(&emit(profile, Prefer::Wall, Language::Json)).unwrap()
}

#[test]
fn a_threshold_lies_where_the_planner_changes_its_mind() {
    let tables = as_json(&profile())["tables"].as_array().unwrap().clone();
    assert_eq!(tables.len(), 1, "{tables:?}");
    assert_eq!(tables[0]["name"], "pipe_to_pipe");
    let bands = tables[0]["bands"].as_array().unwrap();
    assert_eq!(bands.len(), 2, "{bands:?}");
    assert!((65536..1 << 20).contains(&bands[0]["upto"].as_u64().unwrap()), "{bands:?}");
    assert_eq!((&bands[0]["way"], &bands[1]["way"]), (&"read-write".into(), &"splice".into()));
    assert!(bands[1]["upto"].is_null() && bands[1]["knobs"]["pipe"] == 65536, "{bands:?}");
}

#[test]
fn the_header_names_the_machine_and_that_it_holds_for_no_other() {
    for language in [Language::C, Language::Json] {
        let text = emit(&profile(), Prefer::Wall, language);
        let head: String = text.lines().take(30).collect();
        let kernel = profile().machine.iter().find(|(k, _)| *k == "kernel").unwrap().1.to_owned();
        assert!(head.contains(&kernel) && head.contains("only for this machine"), "{text}");
        assert!(head.contains("2026-11-21") && head.contains("6 to 6"), "{text}");
    }
}

#[test]
fn nothing_in_a_profile_can_end_a_comment() {
    let mut profile = profile();
    profile.machine.set("cpu", "evil */ int x; \n#error \\");
    profile.machine.set("odd\n#error", "value");
    for cell in &mut profile.cells {
        cell.at = "2026\n#error".to_owned();
        if !cell.tuning.is_default() {
            cell.tuning = Tuning::of("odd\"\n#error", 1);
        }
    }
    for language in [Language::C, Language::Json] {
        let text = emit(&profile, Prefer::Wall, language);
        assert!(!text.contains("evil */") && !text.contains("\n#error"), "{text}");
    }
}

#[test]
fn an_empty_profile_gives_a_header_and_no_table() {
    let empty = as_json(&Profile::new());
    assert!(empty["tables"].as_array().unwrap().is_empty() && empty["about"].is_array());
    let text = emit(&Profile::new(), Prefer::Cpu, Language::C);
    assert!(!text.contains("thalweg_pipe"), "{text}");
}
