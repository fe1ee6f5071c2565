//! Many pipes of one unprivileged user. At the user's limit of pipe memory, the kernel makes new pipes smaller; all
//! bytes must still arrive.

use std::{fs, process::Command};

use crate::support::{
    Running, Scratch, bytes, run,
    run::{GUARD, quiet_environment},
    skip::{has_tools, is_root},
};

const PIPES: u64 = 200;
const LEN: u64 = 1 << 20;

/// Every thalweg runs between two pipes, so that both pipes count against the limits of the user.
const CROWD: &str = r#"
cd "$1" || exit 9
for n in $(seq "$2"); do
    { cat source | ./thalweg pipe $3 2>"said.$n" | cmp - source >>"differ.$n" 2>&1 && : >"done.$n"; } &
done
wait
"#;

#[test]
fn two_hundred_pipes_of_an_ordinary_user_all_deliver() {
    let test = "two_hundred_pipes_of_an_ordinary_user_all_deliver";
    if !is_root(test) || !has_tools(test, &["setpriv", "cmp", "seq"]) {
        return;
    }
    for way in ["", "--zero-copy"] {
        let scratch = Scratch::public();
        scratch.binary();
        bytes::write(&scratch.join("source"), 1, LEN);
        let mut crowd = Command::new("setpriv");
        crowd.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "sh", "-c", CROWD]);
        crowd.arg("sh").arg(scratch.path()).args([&PIPES.to_string(), way]);
        quiet_environment(&mut crowd);
        crowd.env("THALWEG_PROFILE", scratch.join("profile.json"));
        Running::start(&mut crowd).finish_within(5 * GUARD).expect(0);
        let read = |name: String| fs::read_to_string(scratch.join(&name)).unwrap_or_default();
        for n in 1..=PIPES {
            let (said, differ) = (read(format!("said.{n}")), read(format!("differ.{n}")));
            assert!(scratch.join(&format!("done.{n}")).exists(), "pipe {n}: {said} {differ}");
            assert!(!said.contains("panicked"), "pipe {n}: {said}");
        }
    }
}

#[test]
fn many_copies_at_once_share_one_folder() {
    let scratch = Scratch::new();
    bytes::write(&scratch.join("source"), 1, LEN + 1);
    let mut crowd = Command::new("sh");
    let each = r#"cd "$1" || exit 9
        for n in $(seq 60); do "$2" copy source "copy.$n" || echo "$n failed" >&2 & done; wait"#;
    crowd.args(["-c", each, "sh"]).arg(scratch.path()).arg(env!("CARGO_BIN_EXE_thalweg"));
    quiet_environment(&mut crowd);
    let ran = run(&mut crowd).expect(0);
    assert_eq!(ran.stderr, "");
    for n in 1..=60 {
        bytes::expect(&scratch.join(&format!("copy.{n}")), 1, LEN + 1);
    }
}
