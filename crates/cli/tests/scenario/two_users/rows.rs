//! Tests of the six cases in which thalweg once used files that another user had prepared as root's files.

use super::{
    arena::Arena,
    commands::Row,
    product::{Kernel, Sprung, spring},
    traps::Trap,
};
use crate::support::skip::is_root;

/// Commands, traps, and a part of the name of the entry that the command must report.
const CASES: [[&str; 3]; 6] = [
    ["fetch here", "part and journal", ".install.sh.thalweg-"],
    ["fetch --sha256", "empty part kept open", ".out.thalweg-part"],
    ["fetch -r", "staging directory with journal", ".tree.thalweg-part"],
    ["copy into", "empty part kept open", ".secret.thalweg-part"],
    ["copy --resume tree", "staging directory with journal", ".tree.thalweg-part"],
    ["copy --shard", "fleet directory with a tree", ".tree.thalweg-fleet"],
];

#[test]
fn entries_of_another_user_are_not_used_and_each_is_reported_once() {
    if !is_root("entries_of_another_user_are_not_used_and_each_is_reported_once") {
        return;
    }
    for [row, trap, leftover] in CASES {
        let arena = Arena::new();
        let Sprung { ran, wrong } =
            spring(&arena, Row::named(row), Trap::named(trap), Kernel::Usual).unwrap();
        assert!(wrong.is_empty(), "{row} / {trap}: {wrong:#?}");
        let reports = ran.stderr.lines().filter(|line| line.contains(leftover)).count();
        assert_eq!(reports, 1, "{row} / {trap}: {}", ran.stderr);
        assert!(ran.stderr.contains("belongs to user 54321"), "{row} / {trap}: {}", ran.stderr);
    }
}
