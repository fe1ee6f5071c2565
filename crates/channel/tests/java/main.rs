//! Rings between Rust and Java, in real processes: every message whole, every death told. Java is
//! compiled here from `java/`; without a JDK that is new enough the tests skip and say so.

#![allow(clippy::unwrap_used)]

mod deaths;
mod jdk;
mod jvm;
mod mapped;
mod messages;
#[path = "../../../cli/tests/support/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;
