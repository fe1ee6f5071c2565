//! Compares the modes of new directories with those of `cp`: sticky bit, set-group-ID of the parent, default ACLs,
//! umask.

use crate::support::{Scratch, shell};

/// Directories with every bit, below plain, sticky and set-group-id directories.
const SOURCES: &str =
    "mkdir -m 1777 d d/sub; mkdir -m 2775 g; mkdir -m 6777 u; mkdir -m 7755 all; mkdir -m 1555 r;
    echo x >d/f; chmod 1644 d/f; mkdir -m 2777 into; mkdir -m 1777 held";

fn modes(program: &str, umask: &str) -> String {
    let scratch = Scratch::new();
    let line = format!(
        "{SOURCES}; umask {umask}; c=\"{program}\"
        $c -r d t; $c -r u g r all into; $c -r d held; mkdir p; $c -r --parents d/sub p; $c -r d/. dot
        mkdir old; chmod 1700 old; $c -rT d old;
        mkdir kept; $c -rp d all kept
        find . -printf '%P %y %m %G\\n' | sort"
    );
    let ran = shell(scratch.path(), &line);
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_new_directory_has_the_mode_that_cp_gives_it() {
    for umask in ["0", "022", "027", "077"] {
        let [cp, ours] = ["cp", "$T copy"].map(|program| modes(program, umask));
        assert!(cp.contains("t/sub d 1"), "{cp}");
        assert_eq!(ours, cp, "umask {umask}");
    }
}
