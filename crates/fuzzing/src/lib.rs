//! One function per kind of untrusted input. It panics if the code that reads the input violates one of its guarantees.
//!
//! The fuzz targets in `fuzz/` call these functions with mutated inputs. `tests/inputs/replay.rs` calls them with the
//! inputs in `fuzz/seeds`.

#![forbid(unsafe_code)]

mod answered;
mod scripted;
mod snapshot;
mod watched;

/// Declares one module per target, each with a function `run`.
macro_rules! targets {
    ($($name:ident)*) => {
        $(pub mod $name;)*

        /// All targets, by name.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name::run }),*];
    };
}

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its directory in `fuzz/seeds`.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

targets! {
    blocks bulk chunked client digest_list exclude filter_files fleet frames handed journal manifest netrc peer profile
    proxy remote_name request response ring server stream sync_state tree_list url
}
