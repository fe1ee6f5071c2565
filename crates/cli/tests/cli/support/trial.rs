//! Helpers for the tests of `thalweg trial`.

use serde_json::Value;

use super::{Scratch, skip};

/// Returns `true` if this build has an object to preload; otherwise records a skip.
pub fn reaches(scratch: &Scratch, test: &str) -> bool {
    let ran =
        scratch.run(&["trial", "-n", "2", "-k", "simple", "--tunables", "none", "--", "true"]);
    if ran.code == 4 && ran.err.contains("contains no LD_PRELOAD library") {
        skip(test, ran.err.trim());
        return false;
    }
    assert_eq!(ran.code, 0, "{}", ran.err);
    true
}

/// Returns the row of an arm.
pub fn row<'j>(json: &'j Value, name: &str) -> &'j Value {
    let rows = json["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {json}"))
}
