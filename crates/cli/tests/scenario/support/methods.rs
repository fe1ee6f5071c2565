//! The mechanisms, as the binary lists them, so that the tests need not name any.

use serde_json::Value;
use std::sync::LazyLock;

use super::{run, thalweg};

static LIST: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let list = run(thalweg().args(["list", "--json"])).expect(0).all_json();
    list["mechanisms"].as_array().expect("a list of mechanisms").clone()
});

/// Returns the mechanisms that support transfers from a file to a file.
pub fn file_methods() -> Vec<String> {
    moving("file", "file").map(name).collect()
}

/// Returns the mechanisms of [`file_methods`] that use this system call.
pub fn methods_calling(call: &str) -> Vec<String> {
    let makes_it =
        |m: &&Value| m["calls"].as_array().is_some_and(|calls| calls.contains(&call.into()));
    moving("file", "file").filter(makes_it).map(name).collect()
}

fn moving(source: &'static str, sink: &'static str) -> impl Iterator<Item = &'static Value> {
    let fits = move |pair: &Value| pair["source"] == source && pair["sink"] == sink;
    let pairs = |m: &'static Value| m["pairs"].as_array().expect("pairs");
    LIST.iter().filter(|m| m["role"] != "harness").filter(move |m| pairs(m).iter().any(fits))
}

fn name(mechanism: &Value) -> String {
    mechanism["name"].as_str().expect("a name").to_owned()
}
