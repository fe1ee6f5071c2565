//! Questions that lead to skips.

pub use thalweg_testing::{has_tools, skip};

/// Whether this may run as root does; if not, that is a skip.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}
