//! `--exclude`, `--exclude-from` and `--files-from`: excluded entries are never opened, and listed entries are copied.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
};

use crate::support::{Scratch, shell, skip};

/// Returns the entries that `find` lists below a directory, sorted.
fn found(scratch: &Scratch, folder: &str) -> String {
    let line = format!("cd {folder} && find . -mindepth 1 | LC_ALL=C sort | tr '\\n' ' '");
    String::from_utf8(shell(scratch.path(), &line).expect(0).stdout).unwrap()
}

/// Makes a tree with files to exclude at several depths.
fn tree() -> Scratch {
    let scratch = Scratch::new();
    let made = "mkdir -p s/sub/build s/build s/keep; cd s
        for f in a.c a.o sub/b.c sub/b.o sub/build/x build/y keep/k.o '#odd' 'sp ace'; do echo $f >\"$f\"; done
        ln -s build link";
    shell(scratch.path(), made).expect(0);
    scratch
}

#[test]
fn patterns_mean_what_they_mean_in_a_gitignore() {
    let scratch = tree();
    let all = "./#odd ./a.c ./a.o ./build ./build/y ./keep ./keep/k.o ./link ./sp ace ./sub ./sub/b.c ./sub/b.o \
               ./sub/build ./sub/build/x ";
    let less = |out: &[&str]| {
        out.iter().fold(all.to_owned(), |all, name| {
            assert!(all.contains(&format!("./{name} ")), "{name}");
            all.replace(&format!("./{name} "), "")
        })
    };
    for (flags, out) in [
        ("--exclude '*.o'", &["a.o", "keep/k.o", "sub/b.o"][..]),
        ("--exclude '*.o' --exclude '!k.o'", &["a.o", "sub/b.o"]),
        ("--exclude '!k.o' --exclude '*.o'", &["a.o", "keep/k.o", "sub/b.o"]),
        ("--exclude /build", &["build", "build/y"]),
        ("--exclude build/", &["build", "build/y", "sub/build", "sub/build/x"]),
        // A pattern with a slash at its end does not match a symbolic link to a directory.
        ("--exclude link/", &[]),
        ("--exclude link", &["link"]),
        ("--exclude '#odd' --exclude 'sp ace'", &["#odd", "sp ace"]),
        ("--exclude 'sub/*.o'", &["sub/b.o"]),
        // As in git, braces are ordinary characters. A malformed pattern matches nothing.
        ("--exclude '{a,b}.o' --exclude 'a[b' --exclude $'\\xff'", &[]),
        ("--exclude '**/build/x'", &["sub/build/x"]),
        // A pattern with `!` for a file does not include its excluded directory again.
        (
            "--exclude sub --exclude '!b.c'",
            &["sub", "sub/b.c", "sub/b.o", "sub/build", "sub/build/x"],
        ),
        ("--exclude-from <(printf '# no o\\n\\n*.o\\n!k.o\\n')", &["a.o", "sub/b.o"]),
        ("--exclude-from <(printf '*.o\\0!k.o\\0') -0", &["a.o", "sub/b.o"]),
        ("--exclude-from - --exclude '!k.o' <<<'*.o'", &["a.o", "sub/b.o"]),
        // Patterns are relative to the source, so `/s` does not match the source `s` itself.
        ("--exclude /s", &[]),
        ("--exclude gone", &[]),
    ] {
        for (source, jobs) in [("s", 1), ("s/", 4), ("s/.", 2)] {
            shell(
                scratch.path(),
                &format!("rm -rf d; $T copy -a --jobs {jobs} {source} d {flags}"),
            )
            .expect(0);
            assert_eq!(found(&scratch, "d"), less(out), "{flags} {source}");
        }
    }
}

#[test]
fn a_source_is_left_out_by_its_own_name_and_that_is_said() {
    let scratch = tree();
    shell(scratch.path(), "mkdir d; $T copy s/a.c s/a.o d --exclude '*.o'").expect(0);
    assert_eq!(found(&scratch, "d"), "./a.c ");
    let nothing = shell(scratch.path(), "$T copy -r s e --exclude s").expect(0);
    assert!(
        nothing.stderr.contains("nothing copied: everything is excluded"),
        "{}",
        nothing.stderr
    );
    assert!(!scratch.join("e").exists());
    // `s/` means the contents of `s`, so its name is not compared with the pattern.
    shell(scratch.path(), "$T copy -r s/ e --exclude s").expect(0);
    assert!(scratch.join("e/a.c").exists());
}

#[test]
fn what_is_left_out_is_never_opened() {
    let scratch = tree();
    if shell(scratch.path(), "command -v strace && strace -o /dev/null true").code() != 0 {
        return skip("what_is_left_out_is_never_opened", "strace cannot trace here");
    }
    let line = "strace -f -o trace -e trace=open,openat,openat2 $T copy -a s d --exclude build/ --exclude '*.o'";
    shell(scratch.path(), line).expect(0);
    let trace = fs::read_to_string(scratch.join("trace")).unwrap();
    assert!(trace.contains("\"a.c\""), "{trace}");
    for name in ["\"build\"", "\"a.o\"", "\"y\"", "\"x\"", "\"k.o\""] {
        assert!(!trace.contains(name), "{name} was opened: {trace}");
    }
}

#[test]
fn excluded_entries_are_counted_and_named_also_by_a_dry_run() {
    let scratch = tree();
    let line = "$T copy -a s d --exclude build/ --exclude '*.o'";
    let dry = shell(scratch.path(), &format!("{line} --dry-run -vv")).expect(0);
    let said = String::from_utf8(dry.stdout).unwrap();
    assert!(!said.contains("build/") && !said.contains(".o'"), "{said}");
    assert!(
        said.contains("would copy 's/a.c' -> 'd/a.c'") && said.contains(", 5 excluded"),
        "{said}"
    );
    assert!(!scratch.join("d").exists());
    let ran = shell(scratch.path(), &format!("{line} -vv --progress=always")).expect(0);
    for stderr in [dry.stderr, ran.stderr.clone()] {
        for name in ["s/build", "s/sub/build", "s/a.o", "s/sub/b.o", "s/keep/k.o"] {
            assert!(stderr.contains(&format!("excluded '{name}'")), "{name}: {stderr}");
        }
        assert!(!stderr.contains("build/x"), "{stderr}");
    }
    assert!(ran.stderr.contains(", 5 excluded"), "{}", ran.stderr);
}

#[test]
fn listed_names_are_copied_with_their_paths() {
    let scratch = tree();
    for (list, flags, wanted) in [
        ("a.c\\nsub/b.c\\n", "", "./a.c ./sub ./sub/b.c "),
        ("sub/b.c\\na.c\\n./a.c\\nsub//b.c", "", "./a.c ./sub ./sub/b.c "),
        (
            "sub/build\\nsub\\nsub/b.c\\n",
            "-a",
            "./sub ./sub/b.c ./sub/b.o ./sub/build ./sub/build/x ",
        ),
        ("sub/\\n", "-a --exclude /sub/build --exclude /b.c", "./sub ./sub/b.c ./sub/b.o "),
        ("sub/b.c\\nbuild/y\\na.o\\n", "--exclude build/ --exclude '*.o'", "./sub ./sub/b.c "),
        (
            ".\\na.c\\n",
            "-a --exclude /sub --exclude /keep --exclude 's*'",
            "./#odd ./a.c ./a.o ./build ./build/y ./link ",
        ),
        ("", "", ""),
    ] {
        for (end, nul) in [("\\n", ""), ("\\0", " -0")] {
            let list = list.replace("\\n", end);
            let line = format!(
                "rm -rf d; mkdir d; printf '{list}' >l; $T copy{nul} --files-from l s d {flags}"
            );
            shell(scratch.path(), &line).expect(0);
            assert_eq!(found(&scratch, "d"), wanted, "{list} {flags}");
        }
    }
    shell(
        scratch.path(),
        "rm -rf d; mkdir d; cd s; find . -type f -print0 | $T copy -0 --files-from - . ../d",
    )
    .expect(0);
    let all = "./#odd ./a.c ./a.o ./build ./build/y ./keep ./keep/k.o ./sp ace ./sub ./sub/b.c ./sub/b.o ./sub/build \
               ./sub/build/x ";
    assert_eq!(found(&scratch, "d"), all);
}

#[test]
fn names_that_are_no_text_are_copied_and_left_out() {
    let scratch = Scratch::new();
    shell(scratch.path(), "mkdir s d; cd s; for f in $'new\\nline' $'\\xff.o' $'\\xfe' -x '*'; do echo 1 >\"$f\"; done").expect(0);
    shell(scratch.path(), "cd s; find . -type f -print0 | $T copy -0 --files-from - . ../d --exclude '*.o' --exclude=-x").expect(0);
    let mut names: Vec<_> =
        fs::read_dir(scratch.join("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    assert_eq!(names, [&b"*"[..], b"new\nline", b"\xfe"]);
}

#[test]
fn a_listed_name_that_is_missing_fails_and_the_others_are_copied() {
    let scratch = tree();
    let line = "mkdir d; printf 'gone\\nsub/gone\\nno/such\\nsub/b.c\\nkeep\\n' | $T copy --files-from - s d";
    let ran = shell(scratch.path(), line).expect(1);
    for name in ["s/gone", "s/sub/gone", "s/no"] {
        assert!(ran.stderr.contains(&format!("'{name}'")), "{name}: {}", ran.stderr);
    }
    assert!(ran.stderr.contains("is a directory (-r not specified)"), "{}", ran.stderr);
    assert_eq!(found(&scratch, "d"), "./sub ./sub/b.c ");
}

#[test]
fn lists_that_lead_elsewhere_and_flags_that_make_no_sense_are_refused() {
    let scratch = tree();
    shell(scratch.path(), "mkdir d; printf '*.o' >p; printf 'a.c\\n' >l").expect(0);
    for (line, code, why) in [
        ("printf 'a.c\\n../p\\n' | $T copy --files-from - s d", 2, "line 2: '../p' contains '..'"),
        ("printf 'sub/../a.c' | $T copy --files-from - s d", 2, "line 1"),
        ("printf '/etc/passwd\\n' | $T copy --files-from - s d", 2, "is absolute"),
        ("printf 'a.c\\0b' | $T copy --files-from - s d", 2, "-0"),
        ("$T copy --files-from l s s/sub d", 2, "a single SRC"),
        ("$T copy --files-from l p d", 2, "not a directory"),
        ("$T copy --files-from l gone d", 1, "ENOENT"),
        ("$T copy --files-from gone s d", 1, "ENOENT"),
        ("$T copy --files-from l s new", 2, "the destination must be a directory"),
        ("$T copy --files-from - --exclude-from - s d <l", 2, "cannot both read standard input"),
        ("$T copy --files-from - s d <&-", 1, "standard input"),
        ("$T copy --parents --files-from l s d", 2, "cannot be used with"),
        ("$T copy --exclude x p -", 2, "cannot be used with"),
        ("$T copy -r --exclude-from gone s d", 1, "ENOENT"),
    ] {
        let ran = shell(scratch.path(), line).expect(code);
        assert!(ran.stderr.contains(why), "{line}: {}", ran.said());
        assert_eq!(found(&scratch, "d"), "", "{line}");
    }
}

#[test]
fn a_part_of_a_tree_is_resumed_verified_and_keeps_its_hard_links() {
    let scratch = tree();
    shell(
        scratch.path(),
        "ln s/a.c s/sub/again; ln s/a.c s/hard.o; head -c 3000000 /dev/urandom >s/sub/large",
    )
    .expect(0);
    for line in [
        "$T copy -a --resume --verify s d --exclude '*.o'",
        "mkdir -p e; (cd s; find . -type f ! -name '*.o' -print0) | $T copy -0a --resume --verify --files-from - s e",
    ] {
        let folder = if line.contains(" e;") { "e" } else { "d" };
        shell(scratch.path(), line).expect(0);
        let copy = fs::metadata(scratch.join(folder).join("a.c")).unwrap();
        assert_eq!(copy.nlink(), 2, "{line}");
        assert_eq!(copy.ino(), fs::metadata(scratch.join(folder).join("sub/again")).unwrap().ino());
        shell(scratch.path(), &format!("rm {folder}/sub/large {folder}/sub/b.c")).expect(0);
        let line = if folder == "d" { line.replace(" s d", " -T s d") } else { line.to_owned() };
        let ran = shell(scratch.path(), &line).expect(0);
        assert!(
            ran.stderr.starts_with("2 files") && ran.stderr.contains(" copied (2.9 MiB)"),
            "{}",
            ran.stderr
        );
        assert!(shell(scratch.path(), &format!("cmp s/sub/large {folder}/sub/large")).code() == 0);
        assert!(!scratch.join(folder).join("hard.o").exists());
    }
    // `--manifest` lists only the files that were copied, so it can verify a partial copy.
    shell(scratch.path(), "$T copy -a s f --exclude '*.o' --manifest m; $T verify --manifest m f")
        .expect(0);
}
