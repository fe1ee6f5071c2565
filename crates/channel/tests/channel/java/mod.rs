//! Rings between Rust and Java in real processes. Every message must be complete, and every death
//! must be reported. The tests compile the Java code in `java/`. Without a recent JDK they skip and
//! print the reason.

mod deaths;
mod jvm;
mod mapped;
mod messages;
