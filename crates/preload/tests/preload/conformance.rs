//! Preloads the object into real programs: their results and the counts are correct, and the object
//! does not disturb the programs.

use crate::support;

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    path::PathBuf,
    process::Command,
};
use support::{Choice, Place, choices, skip};
use thalweg_preload::layout::{COUNTS, KINDS};

fn libc() -> Choice {
    Choice { copies: "libc".into(), fills: "libc".into() }
}

#[test]
fn every_function_under_every_kernel_is_right_for_every_size() {
    let test = "every_function_under_every_kernel_is_right_for_every_size";
    let Some(place) = Place::new(test) else { return };
    let Some(program) = place.compiled(test, "conform.c", &[]) else { return };
    for choice in choices() {
        let output = place.run_uncounted(&choice, &mut Command::new(&program));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said == "right\n", "{choice:?}: {said}");
        assert!(
            output.stderr.is_empty(),
            "{choice:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_checked_form_aborts_before_it_writes_past_the_end() {
    let test = "a_checked_form_aborts_before_it_writes_past_the_end";
    let Some(place) = Place::new(test) else { return };
    let Some(program) = place.compiled(test, "conform.c", &[]) else { return };
    for which in ["0", "1", "2", "3"] {
        let mut command = Command::new(&program);
        let output = place.run_uncounted(&libc(), command.args(["overflow", which]));
        assert_eq!(output.status.signal(), Some(6), "{which}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(words, "*** buffer overflow detected ***: terminated\n", "{which}");
    }
}

#[test]
fn threads_and_forked_children_are_counted_to_the_last_call() {
    let test = "threads_and_forked_children_are_counted_to_the_last_call";
    let Some(place) = Place::new(test) else { return };
    let Some(program) = place.compiled(test, "crowd.c", &[]) else { return };
    for choice in choices() {
        let (output, counts) = place.run(&choice, &mut Command::new(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "right\n", "{choice:?}");
        // A forked child does not run the constructor again.
        assert_eq!((counts.processes, counts.chosen, counts.without_libc), (1, 1, 0));
        for kind in [KINDS[0], KINDS[2]] {
            let class = counts.classes.iter().find(|c| c.kind == kind && c.upto == 2047);
            let class = class.unwrap_or_else(|| panic!("{choice:?}: {kind}: {counts:?}"));
            assert_eq!((class.calls, class.bytes), (80_000, 80_000 * 1500), "{choice:?}: {kind}");
        }
    }
}

#[test]
fn a_call_from_before_it_is_relocated_is_served() {
    let test = "a_call_from_before_it_is_relocated_is_served";
    let Some(place) = Place::new(test) else { return };
    // -z now: otherwise the loader would call the resolver at the call in main, long after the start.
    let shared = ["-shared", "-fPIC", "-Wl,-z,now"];
    let Some(library) = place.compiled(test, "early.c", &shared) else { return };
    let library = library.to_str().expect("a path in UTF-8");
    let Some(program) = place.compiled(test, "asks.c", &[library]) else { return };
    for choice in choices() {
        let (output, counts) = place.run(&choice, &mut Command::new(&program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "right\n", "{choice:?}: {output:?}");
        assert_eq!(counts.chosen, 1, "{choice:?}");
    }
}

#[test]
fn real_programs_give_the_same_output_as_without_it() {
    let test = "real_programs_give_the_same_output_as_without_it";
    let Some(place) = Place::new(test) else { return };
    let numbers = "with recursive t(n) as (values(1) union all select n + 1 from t where n < 3000) \
                   select count(*), sum(length(zeroblob(n) || n)) from t";
    let sorted =
        "print(hash(bytes(70000)) != 0, b''.join(bytes([i % 256]) * i for i in range(500))[-9:])";
    let programs: &[(&str, &[&str])] = &[
        ("true", &[]),
        ("git", &["hash-object", "--stdin"]),
        ("sqlite3", &[":memory:", numbers]),
        ("python3", &["-S", "-c", sorted]),
    ];
    for (name, args) in programs {
        let command = || {
            let mut command = Command::new(name);
            command.args(*args).stdin(std::process::Stdio::null());
            command
        };
        let Ok(plain) = command().output() else {
            skip(test, &format!("{name} is not installed"));
            continue;
        };
        assert!(plain.status.success(), "{name}: {plain:?}");
        for choice in choices() {
            let (output, counts) = place.run(&choice, &mut command());
            assert_eq!(output, plain, "{name} under {choice:?}");
            assert!(
                counts.processes > 0 && counts.chosen == counts.processes,
                "{name}: {counts:?}"
            );
            assert!(*name == "true" || counts.calls() > 0, "{name}: {counts:?}");
        }
    }
}

#[test]
fn a_program_that_is_an_argument_of_its_loader_runs_without_libc() {
    let test = "a_program_that_is_an_argument_of_its_loader_runs_without_libc";
    let Some(place) = Place::new(test) else { return };
    let Some(loader) = loader() else {
        skip(test, "the test itself has no loader");
        return;
    };
    for choice in choices() {
        let (output, counts) = place.run(&choice, Command::new(&loader).arg("/bin/true"));
        assert!(output.status.success(), "{choice:?}: {output:?}");
        assert_eq!((counts.processes, counts.without_libc), (1, 1), "{choice:?}");
    }
}

/// Returns the path of the loader in this program's PT_INTERP header.
fn loader() -> Option<PathBuf> {
    const PT_INTERP: u64 = 3;
    let program = std::fs::read("/proc/self/exe").expect("this program");
    let number = |at: usize, len: usize| {
        program[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    // In the ELF header: offset, size and number of the program headers.
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let mut starts = (0..count).map(|n| (headers + n * size) as usize);
    let start = starts.find(|start| number(*start, 4) == PT_INTERP)?;
    let (from, len) = (number(start + 8, 8) as usize, number(start + 32, 8) as usize);
    let path = program[from..from + len].strip_suffix(b"\0")?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[test]
fn what_is_no_choice_runs_libc_and_shows() {
    let test = "what_is_no_choice_runs_libc_and_shows";
    let Some(place) = Place::new(test) else { return };
    for copies in ["", "no-such-kernel", "8=libc,4=libc", "tuned", &"x".repeat(600)] {
        let choice = Choice { copies: copies.to_owned(), fills: "libc".to_owned() };
        let (output, counts) = place.run(&choice, &mut Command::new("true"));
        assert!(output.status.success(), "{copies}: {output:?}");
        assert_eq!((counts.processes, counts.chosen), (1, 0), "{copies}");
    }
}

#[test]
fn a_file_that_is_none_of_ours_is_not_written_to() {
    let test = "a_file_that_is_none_of_ours_is_not_written_to";
    let Some(place) = Place::new(test) else { return };
    let file = place.path("precious");
    for bytes in [vec![], b"short".to_vec(), vec![7; 5000]] {
        std::fs::write(&file, &bytes).unwrap();
        let output = place.run_uncounted(&libc(), Command::new("true").env(COUNTS, &file));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    for nowhere in ["", "/no/such/file", &"/x".repeat(5000)] {
        let output = place.run_uncounted(&libc(), Command::new("true").env(COUNTS, nowhere));
        assert!(output.status.success(), "{output:?}");
    }
}
