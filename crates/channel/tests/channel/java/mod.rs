//! Rings between Rust and Java, in real processes: every message whole, every death told. Java is
//! compiled here from `java/`; without a JDK that is new enough the tests skip and say so.

mod deaths;
mod jvm;
mod mapped;
mod messages;
