//! The fastest method of today, found in simulated runs.

use crate::planted::{self, simulated, simulated::World};

use thalweg_lab::{report::today, study::result::Condition};

const STUDY: &str = r#"
schema = 1
id = "test"
title = "the fastest method"
summary = "three methods with known costs"
[source]
title = "none"
[[cell]]
name = "c"
sizes = ["1KiB"]
arms = ["slow", "quick", "as quick", "not asked"]
[[arm]]
name = "slow"
work = "copy"
[[arm]]
name = "quick"
work = "copy"
[[arm]]
name = "as quick"
work = "copy"
[[arm]]
name = "not asked"
work = "copy"
[[today]]
task = "copy"
cell = "c"
size = "1KiB"
arms = ["slow", "quick"]
[[today]]
task = "copy again"
cell = "c"
size = "1KiB"
arms = ["slow", "quick", "as quick"]
"#;

fn cost(arm: &str, _: &Condition) -> f64 {
    match arm {
        "slow" => 0.02,
        "not asked" => 0.001,
        _ => 0.01,
    }
}

#[test]
fn the_fastest_of_the_named_methods_is_recommended_and_a_missing_one_is_listed() {
    let study = planted::study(STUDY);
    let world = World { sigma: 0.02, sessions: 0.005, ..World::default() };
    let mut result = simulated::run(&study, (6, 10), (world, 7), &cost);
    let answers = today(&study, &result);
    let first = "To copy, use \"quick\": 0.4";
    assert!(answers[0].starts_with(first), "{answers:?}");
    assert!(answers[0].ends_with("of the time of \"slow\"."), "{answers:?}");
    assert!(answers[1].contains("; no difference from \""), "{answers:?}");
    result.arms.retain(|arm| arm.name != "as quick");
    let answers = today(&study, &result);
    assert!(answers[1].ends_with(" Not measured in this run: \"as quick\"."), "{answers:?}");
    result.arms.retain(|arm| arm.name != "slow");
    assert!(today(&study, &result).is_empty(), "one method cannot be compared");
}
