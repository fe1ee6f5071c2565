//! A file is never copied over itself, whatever names lead to it.

use std::fs;

use crate::support::{
    Scratch, run, shell, skip,
    skip::{has_tools, is_root},
    thalweg,
};
use thalweg_testing::Sample;

/// One file with two names, symbolic links to it, a link to a link, and a link with two names.
const FILES: &str = "echo x >a; ln a b; ln -s a s1; ln -s a s2; ln -s s1 s3; ln -s a t; ln -P t u";

#[test]
fn a_link_copied_onto_what_it_leads_to_is_refused() {
    for options in ["-a", "-P", "-af", "-a --resume", "-a --inplace", "-d", "-P -v"] {
        for (link, file) in [("s1", "a"), ("s3", "a"), ("s1", "b"), ("u", "b"), ("./s1", "../t/a")]
        {
            let scratch = Scratch::new();
            let folder = scratch.folder("t");
            let ran = shell(&folder, &format!("{FILES}; $T copy {options} {link} {file}"));
            if options == "-d" && ran.code() == 2 {
                continue;
            }
            ran.expect(1).expect_said("is the same file as");
            assert_eq!(fs::read(folder.join("a")).unwrap(), b"x\n", "{options} {link} {file}");
            assert!(folder.join("a").is_file() && !folder.join("a").is_symlink());
        }
    }
}

#[test]
fn a_link_in_a_tree_does_not_take_the_place_of_its_target() {
    let scratch = Scratch::new();
    let line = "mkdir d e; echo x >d/x; echo y >d/y; ln -s ../d/x e/x; ln -s ../d e/z; echo n >e/n";
    shell(scratch.path(), &format!("{line}; $T copy -a e/. d"))
        .expect(1)
        .expect_said("the same file");
    assert_eq!(fs::read(scratch.join("d/x")).unwrap(), b"x\n");
    assert_eq!(fs::read(scratch.join("d/n")).unwrap(), b"n\n", "the others are copied");
    assert!(scratch.join("d/z").is_symlink());
}

#[test]
fn with_a_backup_the_file_stays_under_another_name() {
    let scratch = Scratch::new();
    shell(scratch.path(), &format!("{FILES}; $T copy -a --backup=simple s1 a")).expect(0);
    assert_eq!(fs::read(scratch.join("a~")).unwrap(), b"x\n");
    assert_eq!(fs::read_link(scratch.join("a")).unwrap().to_str(), Some("a"));
}

#[test]
fn two_names_of_one_file_are_one_file_to_a_copy_as_to_cp() {
    // For every pair of names and these options, thalweg refuses if cp refuses, and leaves the same files.
    let looks = "for n in a b s1 s2 s3 t u; do printf '%s ' $n; readlink $n || cat $n 2>&1; done";
    let names = ["a", "b", "s1", "s2", "s3", "t", "u"];
    let mut sample = Sample::new("two_names_of_one_file", 8);
    for options in ["", "-a", "-P", "-f", "-L", "-af"] {
        for from in names {
            for to in names {
                if options != "-L" && matches!((from, to), ("t", "u") | ("u", "t")) {
                    // For two names of one symbolic link, both do nothing. cp exits with 0, and thalweg reports an
                    // error.
                    continue;
                }
                if !sample.takes() {
                    continue;
                }
                let after = |command: &str| {
                    let scratch = Scratch::new();
                    let line = format!(
                        "{FILES}; {command} {options} {from} {to} >/dev/null; echo $?; {looks}"
                    );
                    String::from_utf8(shell(scratch.path(), &line).stdout).unwrap()
                };
                assert_eq!(after("$T copy"), after("cp"), "{options} {from} {to}");
            }
        }
    }
}

#[test]
fn a_file_seen_by_another_mount_is_itself() {
    let test = "a_file_seen_by_another_mount_is_itself";
    let Some(root) = crate::support::mounts().get(test, "ext4") else { return };
    let scratch = Scratch::within(root);
    let line = "mkdir d m; echo x >d/f; mount --bind d m; ! $T copy -q d/f m/f && ! $T copy -qrT d m && cat m/f";
    let ran =
        shell(scratch.path(), &format!("unshare --mount --propagation=slave bash -c '{line}'"))
            .expect(0);
    assert_eq!(ran.stdout, b"x\n");
    let mut copy = thalweg();
    run(copy.arg("copy").arg("-r").args([scratch.join("d"), scratch.join("d/inside")])).expect(1);
    // As with cp, the copy contains everything except itself.
    assert_eq!(crate::support::names(&scratch.join("d/inside")), ["f"]);
}

#[test]
fn a_file_that_an_overlay_shows_under_another_number_is_not_emptied_by_its_own_copy() {
    let test = "a_file_that_an_overlay_shows_under_another_number_is_not_emptied_by_its_own_copy";
    if !is_root(test) || !has_tools(test, &["unshare"]) {
        return;
    }
    let scratch = Scratch::public();
    let overlay = "mount -t tmpfs none on && cd on && mkdir low up work all u && head -c 3000000 /dev/urandom >low/f &&
        mount -t overlay -o lowerdir=low,upperdir=up,workdir=work overlay all || exit 77; cp low/f true; cd ..; ";
    let in_mounts = |line: &str| {
        let inside = [overlay, line].concat();
        shell(
            scratch.path(),
            &format!("mkdir -p on; unshare --mount --propagation=slave bash -c '{inside}'"),
        )
    };
    if in_mounts("true").code() == 77 {
        return skip(test, "no overlay can be mounted on tmpfs here");
    }
    for (from, to) in [("all/f", "low/f"), ("all/g", "up/g"), ("up/g", "all/g")] {
        // The overlay stores a written file in its upper layer.
        let line = "cp on/true on/all/g; touch -d @1000.5 on/TO; $T copy --inplace on/FROM on/TO;
            test $? = 1 && cmp on/FROM on/true && cmp on/TO on/true && test $(stat -c %Y on/TO) = 1000";
        in_mounts(&line.replace("FROM", from).replace("TO", to))
            .expect(0)
            .expect_said("is the same file as");
    }
    // The user may write the file but does not own it.
    let line = "chmod 666 on/low/f; chmod 755 on; cd on; \
        setpriv --reuid=1000 --clear-groups $T copy --inplace all/f low/f; test $? = 1 && cmp low/f true";
    if has_tools(test, &["setpriv"]) {
        let line = line.replace("$T", &scratch.binary().to_string_lossy());
        in_mounts(&line).expect(0).expect_said("is the same file as");
    }
    // Copies between two different files of equal size, and to a file that the overlay copies to its upper layer before
    // the write.
    let line = "head -c 3000000 /dev/zero >on/z; mount -t tmpfs none on/u; cp on/z on/u/z; \
        $T copy -q --inplace on/low/f on/u/z && cmp on/u/z on/true && $T copy -q --inplace on/low/f on/all/f && \
        cmp on/all/f on/true";
    in_mounts(line).expect(0);
}

/// A destination may be a symbolic link to the destination of another source, which takes longer to copy.
#[test]
fn sources_whose_destinations_lead_to_each_other_are_copied_in_the_order_given() {
    for (words, code, large, link) in
        [("large small", 0, "small", "large"), ("small large", 1, "large", "large")]
    {
        let scratch = Scratch::new();
        shell(
            scratch.path(),
            "mkdir s d; head -c 60000000 /dev/zero >s/large; echo small >s/small",
        )
        .expect(0);
        shell(scratch.path(), "ln -s large d/small").expect(0);
        let sources = words.split(' ').map(|name| format!("s/{name}")).collect::<Vec<_>>();
        shell(scratch.path(), &format!("$T copy {} d", sources.join(" "))).expect(code);
        let same = format!("cmp s/{large} d/large && test \"$(readlink d/small)\" = {link}");
        shell(scratch.path(), &same).expect(0);
    }
}
