//! Conditions of tests; if one does not hold, the test is skipped.

pub use thalweg_testing::{has_tools, skip};

/// Returns `true` if the tests run as root; otherwise records a skip.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}
