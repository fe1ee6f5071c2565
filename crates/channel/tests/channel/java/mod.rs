//! Rings between Rust and Java, in real processes: every message is whole, and every death is
//! reported. The tests compile Java from `java/`. Without a recent JDK they skip and print the
//! reason.

mod deaths;
mod jvm;
mod mapped;
mod messages;
