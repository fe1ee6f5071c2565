//! Study results: no input may crash the parser, the evaluation of its claims, or the parser of samples.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_lab::{
    arms::CATALOGUE,
    study::{claims, file::StudyFile, store},
};

const RESULT: &str = include_str!("../../crates/lab/tests/data/result-1.json");
const STUDY: &str = r#"
schema = 1
id = "test"
title = "t"
summary = "s"
[source]
title = "none"
[[cell]]
name = "c"
sizes = ["1KiB", "1MiB"]
loads = ["idle", "busy"]
arms = ["a", "b", "c"]
[[arm]]
name = "a"
work = "null"
[[arm]]
name = "b"
work = "null"
[[arm]]
name = "c"
work = "null"
[[claim]]
id = "1"
kind = "ratio"
text = "t"
check = [
  { test = "ratio", arms = ["a", "b"], at = { cell = "c", size = "1KiB" }, within = [0.0, 1.0] },
  { test = "mean-ratio", arms = ["a", "b"], at = { cell = "c" }, within = [0.0, 1.0] },
  { test = "opposite", arms = ["a", "b"], cells = ["c"], around = [0.9, 1.1] },
  { test = "load-ratio", arm = "a", at = { cell = "c", size = "1KiB" }, loads = ["busy", "idle"], within = [0.0, 1.0] },
  { test = "rank-correlation", arms = ["a", "b", "c"], places = [{ cell = "c", size = "1KiB" }, { cell = "c", size = "1MiB" }], within = [0.0, 1.0] },
]
"#;

fuzz_target!(|text: &[u8]| {
    if let Ok(lines) = std::str::from_utf8(text) {
        let mut empty = store::parse_result(RESULT.as_bytes()).expect("a result");
        let _ = store::put_back(&(store::csv(&[]) + lines), &mut empty);
    }
    let Ok(mut result) = store::parse_result(text) else { return };
    let again = store::to_text(&result).expect("a result that was read can be written");
    store::parse_result(again.as_bytes()).expect("and read again");
    let _ = store::put_back(&store::csv(std::slice::from_ref(&result)), &mut result);
    let study = StudyFile::parse(STUDY, &CATALOGUE).expect("a study");
    for claim in claims::judge(&study, &result) {
        assert!(!claim.reason.is_empty());
    }
});
