//! Symbolic links to directories that another user plants in a directory for all, such as `/tmp`.

use thalweg_testing::script;

use crate::support::{
    Scratch, shell,
    skip::{has_tools, is_root},
};

/// Commands that would write below `shared/link`, a link of another user to `victim`. `$E` reaches the "other" machine.
const WRITES: [&str; 15] = [
    "$T copy f shared/link",
    "$T copy f shared/link/",
    "$T copy f shared/link/f",
    "$T copy -r d shared/link",
    "$T copy -a --parents d/g shared/link",
    "$T sync d shared/link",
    "$T sync d shared/link/below",
    "$T sync --delete --trash shared/link d old",
    "$T sync $E --delete --trash $PWD/shared/link d h:$PWD/old",
    "$T sync $E d h:$PWD/shared/link",
    "$T sync $E h:$PWD/d shared/link/below",
    "$T move f d shared/link",
    "$T sync --log shared/link/log d new",
    "$T sync --log shared/link/log $E d h:$PWD/new",
    "$T sync --log shared/link/log $E h:$PWD/d new",
];

#[test]
fn a_link_of_another_user_leads_no_command_into_another_directory() {
    let test = "a_link_of_another_user_leads_no_command_into_another_directory";
    if !is_root(test) || !has_tools(test, &["setpriv"]) {
        return;
    }
    for write in WRITES {
        let scratch = Scratch::new();
        script(&scratch.join("rsh"), "#!/bin/sh\nshift\nexec \"$@\"\n");
        let setup = "umask 022; mkdir d victim old; echo 1 >f; echo 2 >d/g; echo 3 >old/g; mkdir -m 1777 shared; chmod 755 .; \
                     setpriv --reuid=54321 --regid=54321 --clear-groups ln -s ../victim shared/link; \
                     E=\"-e ./rsh --remote-program $T\"";
        let ran = shell(scratch.path(), &format!("{setup}; {write}; echo $?; ls -A victim"));
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n", "{write}: {}", ran.said());
        ran.expect_said("ermission denied");
        // The rule concerns links of other users only.
        let own = write.replace("shared/link", "shared/own");
        let ran = shell(scratch.path(), &format!("{setup}; ln -s ../victim shared/own; {own}"));
        assert_eq!(ran.status.code(), Some(0), "{own}: {}", ran.said());
    }
}
