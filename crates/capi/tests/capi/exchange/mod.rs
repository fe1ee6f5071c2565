//! Every language exchanges messages with every other, through the public API of each: this process
//! and programs in C and Python (`rust`), and those and Java among each other (`pairs`); Rust and
//! Java meet in crates/channel. Whichever is killed, the other has every message that was
//! committed, and is told.

mod pairs;
mod program;
mod rust;
mod vectors;
