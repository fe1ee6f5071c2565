//! Tests of each subcommand by itself.
#![allow(clippy::unwrap_used)]

mod compare;
mod copy;
mod list_plan_doctor;
mod pages;
mod pipe;
mod report;
mod serve;
mod study;
mod study_unfinished;
mod support;
mod trial;
mod trial_programs;
mod tune;
mod unchanging;
