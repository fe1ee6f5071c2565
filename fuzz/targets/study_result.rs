//! No text is a result that crashes, not even one whose claims are judged again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_lab::{study::{claims, file::Study, store}, arms::CATALOGUE};

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
    let Ok(result) = store::parse_result(text) else { return };
    let again = store::to_text(&result).expect("a result that was read can be written");
    store::parse_result(again.as_bytes()).expect("and read again");
    let study = Study::parse(STUDY, &CATALOGUE).expect("a study");
    for claim in claims::judge(&study, &result) {
        assert!(!claim.reason.is_empty());
    }
});
