//! The flags of `cp`, one by one, with the real command.

use crate::support::{Scratch, run, thalweg};
use std::fs;

#[test]
fn no_clobber_wins_over_force_and_interactive_in_any_order() {
    for words in [["-n", "-f"], ["-f", "-n"], ["-n", "-i"], ["-i", "-n"], ["-nf", "-i"]] {
        let scratch = Scratch::new();
        fs::write(scratch.join("new"), "new").unwrap();
        fs::write(scratch.join("old"), "old").unwrap();
        fs::write(scratch.join("yes"), "y\n").unwrap();
        let yes = fs::File::open(scratch.join("yes")).unwrap();
        let mut command = thalweg();
        command.arg("copy").args(words).args(["new", "old"]).current_dir(scratch.path());
        let ran = run(command.stdin(yes)).expect(0);
        assert_eq!(fs::read(scratch.join("old")).unwrap(), b"old", "{words:?}: {}", ran.said());
    }
}
