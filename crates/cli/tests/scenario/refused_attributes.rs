//! Extended attributes and ACLs that the destination refuses. thalweg reports and counts them, and never gives more
//! users access.

use std::fs;

use crate::support::{
    Scratch,
    deny::{Call, GET_ATTRIBUTE, LIST_ATTRIBUTES, LIST_ATTRIBUTES_AT, SET_ATTRIBUTE, run_without},
    mounts,
    run::Ran,
    shell, skip,
    skip::{has_tools, is_root},
    thalweg,
};

/// Two files, a directory and a FIFO with ACLs. User 1234 has rights that the owning group lacks. The group bits of the
/// mode show the mask, which is wider than the group's own entry.
const LISTED: &str = "mkdir -p s/d; for f in 1 2; do echo $f >s/$f; chmod 640 s/$f; \
    setfacl -m u:1234:rwx s/$f; done; setfacl -d -m u:1234:rwx s/d; mkfifo -m 600 s/p; \
    setfacl -m g:1234:rw s/p";
const ATTRIBUTED: &str = "mkdir s; for f in 1 2; do echo $f >s/$f; setfattr -n user.k -v v s/$f; \
    done; setfattr -n user.k -v v s";

/// Runs a line in a directory with `s` and `ram`, a ramfs without attributes and ACLs. The mount is in a new namespace,
/// and ends with it.
fn beside_ram(test: &str, setup: &str, line: &str) -> Option<Ran> {
    let root = mounts().get(test, "ext4")?;
    if !has_tools(test, &["setfacl", "setfattr", "unshare"]) {
        return None;
    }
    let scratch = Scratch::within(root);
    let line = format!("umask 022; {setup}; mkdir ram; mount -t ramfs ram ram; {line}");
    Some(
        shell(scratch.path(), &format!("unshare --mount --propagation=slave bash -c '{line}'"))
            .expect_no_panic(),
    )
}

#[test]
fn a_list_that_cannot_be_kept_is_said_once_and_fails_the_copy_as_with_cp() {
    let test = "a_list_that_cannot_be_kept_is_said_once_and_fails_the_copy_as_with_cp";
    for flags in ["-rp", "-a", "-a --inplace", "-rp --jobs=1 --verify"] {
        for existing in ["", "cp -r s ram/s; chmod 666 ram/s/1;"] {
            let look = "code=$?; cd ram/s; stat -c %a 1 2; stat -c %a d p >&2; exit $code";
            let line = format!("{existing} $T copy -q {flags} -T s ram/s; {look}");
            // Copies only the files, because `cp -r` would block at the FIFO.
            let line = line.replace("cp -r s ram/s", "mkdir ram/s; cp s/1 s/2 ram/s");
            let Some(ran) = beside_ram(test, LISTED, &line) else { return };
            let ran = ran.expect(1);
            assert_eq!(ran.stderr.matches("cannot preserve the ACL").count(), 1, "{flags}");
            assert!(ran.stderr.contains("EOPNOTSUPP"), "{flags}: {}", ran.stderr);
            assert!(ran.stderr.contains("'ram/s/"), "{flags}: {}", ran.stderr);
            // The mask of the files is 7 and the group's entry 4. The FIFO's mask is 6 and its group's entry 0.
            assert_eq!(String::from_utf8_lossy(&ran.stdout), "640\n640\n", "{flags}");
            assert!(ran.stderr.ends_with("755\n600\n"), "{flags}: {}", ran.stderr);
        }
    }
}

#[test]
fn every_refused_acl_is_named_with_v_and_none_if_modes_are_not_kept() {
    let test = "every_refused_acl_is_named_with_v_and_none_if_modes_are_not_kept";
    let Some(told) = beside_ram(test, LISTED, "$T copy -av s ram/s") else { return };
    let told = told.expect(1);
    for name in ["1", "2", "d", "p"] {
        let words = format!("cannot preserve the ACL of 'ram/s/{name}'");
        assert!(told.stderr.contains(&words), "{name}: {}", told.stderr);
    }
    let Some(plain) = beside_ram(test, LISTED, "$T copy -r s ram/s") else { return };
    assert_eq!(plain.expect(0).stderr, "");
}

#[test]
fn user_attributes_that_cannot_be_kept_are_said_once_and_counted() {
    let test = "user_attributes_that_cannot_be_kept_are_said_once_and_counted";
    for flags in ["-a", "-r --preserve=all"] {
        let line = format!("$T copy {flags} --json s ram/s");
        let Some(ran) = beside_ram(test, ATTRIBUTED, &line) else { return };
        let ran = ran.expect(0);
        assert_eq!(ran.json()["attributes_dropped"], 3, "{flags}");
        assert_eq!(ran.stderr.lines().count(), 1, "{flags}: {}", ran.stderr);
        for word in ["'ram/s", "user.k", "EOPNOTSUPP", "copied without it"] {
            assert!(ran.stderr.contains(word), "{flags}: {word}: {}", ran.stderr);
        }
    }
    let Some(summed) = beside_ram(test, ATTRIBUTED, "$T copy -a --verify s ram/s") else { return };
    let said = summed.expect(0).stderr;
    assert!(said.contains("3 extended attributes refused by the destination"), "{said}");
    let Some(usual) = beside_ram(test, ATTRIBUTED, "$T copy -rp s ram/s") else { return };
    assert_eq!(usual.expect(0).stderr, "");
}

#[test]
fn user_attributes_that_were_asked_for_by_name_are_errors_if_they_cannot_be_kept() {
    let test = "user_attributes_that_were_asked_for_by_name_are_errors_if_they_cannot_be_kept";
    for flags in ["-r --preserve=xattr", "-a --preserve=xattr", "--preserve=xattr -a"] {
        let Some(ran) = beside_ram(test, ATTRIBUTED, &format!("$T copy {flags} s ram/s")) else {
            return;
        };
        let is_strict = !flags.ends_with("-a");
        let ran = ran.expect(i32::from(is_strict));
        for name in ["", "/1", "/2"] {
            let words = format!("cannot set an extended attribute of 'ram/s{name}'");
            assert_eq!(ran.stderr.contains(&words), is_strict, "{flags}: {}", ran.stderr);
        }
    }
}

/// Copies a file with an attribute while a call for attributes fails with `errno`.
fn copy_denied(test: &str, call: &Call, errno: i32, flags: &[&str]) -> Option<(Scratch, Ran)> {
    let scratch = Scratch::within(mounts().get(test, "ext4")?);
    if !has_tools(test, &["setfattr"]) {
        return None;
    }
    let setup = "mkdir s; echo f >s/f; setfattr -n user.k -v v s/f; setfattr -n user.k -v v s";
    shell(scratch.path(), setup).expect(0);
    let mut copy = thalweg();
    copy.args(flags).args(["s", "t"]).current_dir(scratch.path());
    let ran = run_without(&[call], errno, &mut copy).map_err(|why| skip(test, &why)).ok()?;
    assert_eq!(fs::read(scratch.join("t/f")).unwrap(), b"f\n", "{}", ran.said());
    Some((scratch, ran))
}

#[test]
fn attributes_without_room_in_the_destination_are_counted() {
    let test = "attributes_without_room_in_the_destination_are_counted";
    for errno in [libc::ENOSPC, libc::E2BIG, libc::EDQUOT, libc::ERANGE, libc::EOPNOTSUPP] {
        let flags = ["copy", "-a", "--json"];
        let Some((_, ran)) = copy_denied(test, &SET_ATTRIBUTE, errno, &flags) else { return };
        let ran = ran.expect(0);
        assert_eq!(ran.json()["attributes_dropped"], 2, "{}", ran.said());
        assert!(ran.stderr.contains("copied without it"), "{}", ran.said());
        let flags = ["copy", "-a", "--preserve=xattr"];
        let Some((_, ran)) = copy_denied(test, &SET_ATTRIBUTE, errno, &flags) else { return };
        ran.expect(1).expect_said("cannot set an extended attribute");
    }
    let Some((_, ran)) = copy_denied(test, &SET_ATTRIBUTE, libc::EIO, &["copy", "-a"]) else {
        return;
    };
    ran.expect(1).expect_said("cannot set an extended attribute");
}

#[test]
fn a_source_that_cannot_list_or_read_attributes_has_none() {
    let test = "a_source_that_cannot_list_or_read_attributes_has_none";
    for call in [LIST_ATTRIBUTES, GET_ATTRIBUTE] {
        for errno in [libc::ENODATA, libc::ENOSYS, libc::EOPNOTSUPP] {
            for flags in [&["copy", "-a"][..], &["copy", "-r", "--preserve=xattr"]] {
                let Some((_, ran)) = copy_denied(test, &call, errno, flags) else { return };
                assert_eq!(ran.expect(0).stderr, "");
            }
        }
        let Some((_, ran)) = copy_denied(test, &call, libc::EIO, &["copy", "-a"]) else { return };
        ran.expect(1);
    }
}

#[test]
fn a_sync_sees_other_attributes_without_the_newest_call_too() {
    let test = "a_sync_sees_other_attributes_without_the_newest_call_too";
    if !has_tools(test, &["setfattr"]) {
        return;
    }
    for errno in [0, libc::ENOSYS, libc::EPERM] {
        let scratch = Scratch::new();
        let plant = "mkdir src; echo f >src/f; echo g >src/g; cp -a src dst; setfattr -n user.k -v 1 src/f; \
                     setfattr -n user.k -v 2 dst/g";
        shell(scratch.path(), plant).expect(0);
        let mut command = thalweg();
        command.current_dir(scratch.path()).args(["sync", "-i", "src", "dst"]);
        let denied: &[&Call] = if errno == 0 { &[] } else { &[&LIST_ATTRIBUTES_AT] };
        let ran = match run_without(denied, errno, &mut command) {
            Ok(ran) => ran.expect(0),
            Err(why) => return skip(test, &why),
        };
        let said = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(said.lines().count(), 2, "{errno}: {said}");
        let get = "getfattr --only-values -n user.k dst/f; getfattr -m user. -d dst/g";
        assert_eq!(shell(scratch.path(), get).stdout, b"1", "{errno}");
    }
}

#[test]
fn an_attribute_that_is_too_long_for_the_destination_is_counted() {
    let test = "an_attribute_that_is_too_long_for_the_destination_is_counted";
    let (Some(from), Some(to)) = (mounts().get(test, "xfs"), mounts().get(test, "ext4")) else {
        return;
    };
    if !has_tools(test, &["setfattr"]) {
        return;
    }
    let (from, to) = (Scratch::within(from), Scratch::within(to));
    let line = format!(
        "echo f >f; setfattr -n user.k -v $(head -c 20000 /dev/zero | tr '\\0' x) f; $T copy -a --json f {}",
        to.join("g").display()
    );
    let ran = shell(from.path(), &line).expect(0);
    assert_eq!(ran.json()["attributes_dropped"], 1, "{}", ran.said());
    assert!(ran.stderr.contains("ENOSPC"), "{}", ran.said());
}

/// A shell function that runs a command without privileges. If the tests have none, it runs the command directly.
const AS_USER: &str = "as_user() { if test $(id -u) = 0; then \
    setpriv --reuid=1234 --regid=1234 --clear-groups \"$@\"; else \"$@\"; fi; }";

#[test]
fn what_its_owner_may_not_write_keeps_its_attributes() {
    let test = "what_its_owner_may_not_write_keeps_its_attributes";
    if !has_tools(test, &["setfattr", "getfattr", "setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    let setup = "mkdir -p s/d; echo 1 >s/f; setfattr -n user.k -v v s/f && setfattr -n user.k -v v s/d \
        && chmod 444 s/f && chmod 555 s/d && chmod 777 .";
    if shell(scratch.path(), setup).code() != 0 {
        return skip(test, "no user attributes here");
    }
    for (flags, mode) in
        [("-a", "444 555"), ("-r --preserve=xattr", "444 555"), ("-a --inplace", "444 555")]
    {
        let line = format!(
            "{AS_USER}; umask 022; as_user ./thalweg copy {flags} -T s new || exit; \
             test \"$(echo $(stat -c %a new/f new/d))\" = \"{mode}\" && \
             getfattr -n user.k --only-values new/f new/d; chmod -R u+w new; rm -r new"
        );
        let ran = shell(scratch.path(), &line).expect(0);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "vv", "{flags}: {}", ran.said());
    }
}

#[test]
fn what_is_roots_to_set_is_left_out_for_a_plain_user_as_with_cp() {
    let test = "what_is_roots_to_set_is_left_out_for_a_plain_user_as_with_cp";
    if !is_root(test) || !has_tools(test, &["setfattr", "setpriv"]) {
        return;
    }
    let scratch = Scratch::public();
    scratch.binary();
    fs::write(scratch.join("f"), "f").unwrap();
    // The value of cap_net_raw+ep.
    let setup = "setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 f \
        && chmod 777 .";
    if shell(scratch.path(), setup).code() != 0 {
        return skip(test, "no capabilities of files here");
    }
    let copy = |flags: &str| {
        shell(scratch.path(), &format!("{AS_USER}; as_user ./thalweg copy --json {flags} f g"))
    };
    let ran = copy("-a").expect(0);
    assert_eq!((&ran.json()["attributes_dropped"], &*ran.stderr), (&0.into(), ""));
    let ran = copy("--preserve=xattr").expect(1);
    assert!(ran.stderr.contains("cannot set an extended attribute of 'g'"), "{}", ran.stderr);
}
