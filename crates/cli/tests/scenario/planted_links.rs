//! Symbolic links to directories that another user plants in a directory for all, such as `/tmp`.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::symlink,
    process::Stdio,
};

use thalweg_testing::script;

use crate::support::{
    Scratch,
    loop_disk::MountedDisk,
    shell,
    skip::{has_tools, is_root},
    thalweg,
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
        // The refusal applies only to links of other users.
        let own = write.replace("shared/link", "shared/own");
        let ran = shell(scratch.path(), &format!("{setup}; ln -s ../victim shared/own; {own}"));
        assert_eq!(ran.status.code(), Some(0), "{own}: {}", ran.said());
    }
}

/// While the sending side lists `a`, the test replaces the directory `later`. The walk has already found `later`, and
/// opens it afterwards.
#[test]
fn a_directory_that_is_swapped_during_the_walk_is_not_listed() {
    let test = "a_directory_that_is_swapped_during_the_walk_is_not_listed";
    if !is_root(test) {
        return;
    }
    let scratch = Scratch::new();
    let line = "mkdir -p source/a source/later; cd source/a; seq -f %0200.f 8000 | xargs touch";
    shell(scratch.path(), line).expect(0);
    let (source, later) = (scratch.join("source"), scratch.join("source/later"));
    // The list of `a` does not fit into the pipe, so that the walk waits before it opens `later`.
    let list = |option: &str, swap: &dyn Fn()| {
        let mut serve = thalweg();
        serve.args(["serve", "--stdio", "--hidden", "--follow=any"]).arg(&source);
        let mut child = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let request = format!("GET /?manifest{option} HTTP/1.0\r\nHost: x\r\n\r\n");
        child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut listed = vec![0; 400];
        output.read_exact(&mut listed).unwrap();
        swap();
        output.read_to_end(&mut listed).unwrap();
        child.wait().unwrap();
        listed.windows(6).filter(|bytes| bytes == b"inside").count()
    };
    let mount = || {
        let mounted = MountedDisk::of_memory(&later, "size=1m");
        fs::write(later.join("inside"), "").unwrap();
        mounted
    };
    for (option, count) in [("", 1), ("&one-file-system", 0)] {
        let mounted = std::cell::RefCell::new(None);
        let listed = list(option, &|| drop(mounted.replace(Some(mount()))));
        assert_eq!(listed, count, "{option}");
    }
    fs::write(source.join("inside"), "").unwrap();
    let listed = list("&copy-links", &|| {
        fs::remove_dir(&later).unwrap();
        symlink(&source, &later).unwrap();
    });
    assert_eq!(listed, 1);
}
