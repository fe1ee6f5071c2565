//! Tests of the six cases in which thalweg once used files that another user had prepared as root's files.

use super::{
    arena::Arena,
    commands::Row,
    product::{Kernel, Sprung, spring},
    traps::Trap,
};
use crate::support::skip::is_root;

/// Checks that the command succeeds or fails without harm, and reports the entry with this name once.
fn expect_no_problem(test: &str, row: &str, trap: &str, leftover: &str) {
    if !is_root(test) {
        return;
    }
    let arena = Arena::new();
    let Sprung { ran, wrong } =
        spring(&arena, Row::named(row), Trap::named(trap), Kernel::Usual).unwrap();
    assert!(wrong.is_empty(), "{row} / {trap}: {wrong:#?}");
    let reports = ran.stderr.lines().filter(|line| line.contains(leftover)).count();
    assert_eq!(reports, 1, "{row} / {trap}: {}", ran.stderr);
    assert!(ran.stderr.contains("belongs to user 54321"), "{row} / {trap}: {}", ran.stderr);
}

#[test]
fn a_fetch_does_not_publish_a_part_of_another_user() {
    let test = "a_fetch_does_not_publish_a_part_of_another_user";
    expect_no_problem(test, "fetch here", "part and journal", ".install.sh.thalweg-");
}

#[test]
fn a_fetch_with_a_digest_does_not_write_into_a_file_that_another_user_keeps_open() {
    let test = "a_fetch_with_a_digest_does_not_write_into_a_file_that_another_user_keeps_open";
    expect_no_problem(test, "fetch --sha256", "empty part kept open", ".out.thalweg-part");
}

#[test]
fn a_fetched_tree_has_no_file_from_a_staging_directory_of_another_user() {
    let test = "a_fetched_tree_has_no_file_from_a_staging_directory_of_another_user";
    expect_no_problem(test, "fetch -r", "staging directory with journal", ".tree.thalweg-part");
}

#[test]
fn a_resumed_copy_does_not_write_a_secret_into_a_file_of_another_user() {
    let test = "a_resumed_copy_does_not_write_a_secret_into_a_file_of_another_user";
    expect_no_problem(test, "copy into", "empty part kept open", ".secret.thalweg-part");
}

#[test]
fn a_resumed_tree_has_no_file_from_a_staging_directory_of_another_user() {
    let test = "a_resumed_tree_has_no_file_from_a_staging_directory_of_another_user";
    expect_no_problem(
        test,
        "copy --resume tree",
        "staging directory with journal",
        ".tree.thalweg-part",
    );
}

#[test]
fn a_fleet_takes_nothing_from_a_fleet_directory_of_another_user() {
    let test = "a_fleet_takes_nothing_from_a_fleet_directory_of_another_user";
    expect_no_problem(test, "copy --shard", "fleet directory with a tree", ".tree.thalweg-fleet");
}
