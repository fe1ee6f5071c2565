//! Each language exchanges messages with every other one, through its public API. `rust` tests this
//! process against programs in C and Python. `pairs` tests programs in C, Python and Java against
//! each other. crates/channel tests Rust against Java. If one process is killed, the other must
//! receive every committed message and then an error.

mod pairs;
mod program;
mod rust;
mod vectors;
