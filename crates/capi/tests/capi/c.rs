//! Tests the C ABI with programs in C, under valgrind if it is installed. Every compiler warning is an error. Also
//! compares the header with the symbols and the layout of the library.

use crate::support;

use serde_json::json;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};
use support::{archive, compile, guide, is_installed, root, run, skip};
use thalweg_channel::bulk::MECHANISMS;
use thalweg_core::{Profile, Role, profile::Ratio};

/// Programs in `c/`. Each gets the path of an empty directory, and must leave it empty. For each case that cannot run
/// in this environment, a program prints the name, a tab and the reason.
const PROGRAMS: [&str; 9] =
    ["transfer", "kernels", "channel", "held", "many", "bulk", "regions", "endings", "late"];

/// Returns the path of a program. Compiles it only once for all tests, because linking the whole library takes long.
fn program(name: &str) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; PROGRAMS.len()] = [const { OnceLock::new() }; PROGRAMS.len()];
    let at = PROGRAMS.iter().position(|known| *known == name).expect("one of them");
    BUILT[at].get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{name}"));
        // Another run of these tests, for another processor, may use this directory at the same time. rename(2) ensures
        // that the name never refers to an incomplete file.
        let made = program.with_extension(std::process::id().to_string());
        compile(&root().join(format!("tests/c/{name}.c")), &made);
        fs::rename(&made, &program).unwrap();
        program
    })
}

fn count_skips(program: &str, printed: &[u8]) {
    for line in String::from_utf8_lossy(printed).lines() {
        let (what, reason) = line.split_once('\t').expect("a name, a tab, a reason");
        skip(&format!("capi/{program} {what}"), reason);
    }
}

#[test]
fn c_programs_do_what_the_header_says() {
    let folder = tempfile::tempdir().unwrap();
    for name in PROGRAMS {
        count_skips(name, &run(Command::new(program(name)).arg(folder.path())).stdout);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name} left something");
    }
}

#[test]
#[ignore = "takes long: the audit suite languages runs it"]
fn valgrind_finds_nothing() {
    if !is_installed("valgrind") {
        return skip("capi/valgrind", "valgrind is not installed");
    }
    let look = |name: &str| {
        let folder = tempfile::tempdir().unwrap();
        let printed = run(Command::new("valgrind")
            .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
            .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
            .arg(format!("--suppressions={}", root().join("tests/c/valgrind.supp").display()))
            .arg(program(name))
            .arg(folder.path())
            // Use smaller buffers under valgrind, because the program is much slower there.
            .args((name == "bulk").then_some("200001")));
        count_skips(&format!("valgrind {name}"), &printed.stdout);
    };
    // Run the programs in parallel, because valgrind uses only one core for all threads of a process.
    thread::scope(|scope| {
        for name in PROGRAMS {
            scope.spawn(move || look(name));
        }
    });
}

/// Returns a profile of this machine in which the preferred arm takes half as long as each other arm.
fn profile_for(preferred: &str) -> Profile {
    let cells = MECHANISMS.iter().map(|arm| {
        let ratio = if arm.info().name == preferred { 0.5 } else { 1.0 };
        let wall = Ratio { ratio, ..Ratio::ONE };
        let cell = json!({
            "source": "process", "sink": "process", "mechanism": arm.info().name, "size": 1 << 20,
            "sink_state": "resident", "wall": wall, "cpu": Ratio::ONE, "noise": 0.03,
            "ns_per_byte": 0.1, "sessions": 3, "rounds": 9, "at": "2026-11-22T00:00:00Z",
        });
        serde_json::from_value(cell).unwrap()
    });
    Profile { cells: cells.collect(), ..Profile::new() }
}

#[test]
fn a_profile_decides_what_a_sender_uses_and_older_programs_go_on_without() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("chosen");
    compile(&root().join("tests/c/chosen.c"), &program);
    let profile = folder.path().join("profile.json");
    let mut count = 0;
    for arm in MECHANISMS.iter().filter(|arm| arm.info().role == Role::Mover) {
        let name = arm.info().name;
        if let Err(why) = arm.probe() {
            skip(&format!("capi/chosen {name}"), &why.reason);
            continue;
        }
        profile_for(name).save(&profile).unwrap();
        // Do not use valgrind: it emulates another processor, for which the profile is invalid.
        run(Command::new(&program).arg(folder.path()).arg(&profile).arg(name));
        count += 1;
    }
    assert!(count >= 2, "{count} arms that could be preferred");
}

#[test]
fn callers_with_their_own_jump_follow_a_profile_however_they_are_linked() {
    let folder = tempfile::tempdir().unwrap();
    let cell = |kernel: &str, ratio: f64| {
        let ratio = Ratio { ratio, lo: ratio, hi: ratio };
        let cell = json!({
            "source": "memory", "sink": "memory", "mechanism": kernel, "size": 64, "wall": ratio,
            "cpu": ratio, "noise": 0.01, "ns_per_byte": 1.0, "sessions": 3, "rounds": 9,
            "at": "2026-11-24T00:00:00Z",
        });
        serde_json::from_value(cell).unwrap()
    };
    let profile = folder.path().join("profile.json");
    let cells = vec![cell("libc", 1.0), cell("simple", 0.5)];
    Profile { cells, ..Profile::new() }.save(&profile).unwrap();
    let library = folder.path().join("libthalweg.so.0");
    run(Command::new(root().join("link")).arg(archive()).arg(&library));
    let program = folder.path().join("follows");
    // Test different kinds of linking. A program that is not position-independent gets a copy of the library's variable
    // (a copy relocation).
    for flags in [&["-fno-pie", "-no-pie"][..], &["-fPIE", "-pie"], &["-fPIC", "-pie", "-O2"]] {
        run(Command::new("cc")
            .arg("-I")
            .arg(root().join("include"))
            .args(flags)
            .args([&root().join("tests/c/follows.c"), &library])
            .arg("-o")
            .arg(&program));
        let mut follows = Command::new(&program);
        run(follows.env("LD_LIBRARY_PATH", folder.path()).arg(&profile));
    }
    let alone = folder.path().join("alone");
    compile(&root().join("tests/c/follows.c"), &alone);
    run(Command::new(&alone).arg(&profile));
}

#[test]
fn the_examples_build_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let transfer = folder.path().join("transfer");
    compile(&root().join("examples/transfer.c"), &transfer);
    let input = folder.path().join("input");
    fs::write(&input, vec![7; 100_000]).unwrap();
    let output = folder.path().join("output");
    run(Command::new(&transfer)
        .env("THALWEG_PROFILE", folder.path().join("none"))
        .stdin(fs::File::open(&input).unwrap())
        .stdout(fs::File::create(&output).unwrap()));
    assert_eq!(fs::read(output).unwrap(), fs::read(input).unwrap());
    let kernels = folder.path().join("kernels");
    compile(&root().join("examples/kernels.c"), &kernels);
    let printed = String::from_utf8(run(&mut Command::new(&kernels)).stdout).unwrap();
    assert!(
        printed.contains("libc") && printed.contains("crc32c") && printed.contains("xxh3"),
        "{printed}"
    );
}

#[test]
fn the_channel_example_passes_lines_and_reports_a_death() {
    let folder = tempfile::tempdir().unwrap();
    let channel = folder.path().join("channel");
    compile(&root().join("examples/channel.c"), &channel);
    let name = folder.path().join("lines");
    let mut receiver = Command::new(&channel)
        .arg("receive")
        .arg(&name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = (0..5000).fold(String::new(), |text, n| text + &format!("line {n}\n"));
    let input = folder.path().join("input");
    fs::write(&input, &text).unwrap();
    let send = || {
        let input = fs::File::open(&input).unwrap();
        Command::new(&channel).arg("send").arg(&name).stdin(input).output().unwrap()
    };
    // Before the receiver listens, connecting fails with ENOENT or ECONNREFUSED.
    let sent = loop {
        let sent = send();
        if sent.status.code() != Some(13) {
            break sent;
        }
        let ended = receiver.try_wait().unwrap();
        assert!(ended.is_none(), "the receiver ended, {ended:?}, before it listened: {sent:?}");
        thread::sleep(Duration::from_millis(2));
    };
    assert!(sent.status.success(), "{sent:?}");
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    let failed = send();
    let told = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        failed.status.code() == Some(13)
            && told.contains(&format!("cannot connect to '{}': no such file", name.display())),
        "{told}"
    );
}

#[test]
fn the_measuring_examples_measure() {
    let folder = tempfile::tempdir().unwrap();
    let memset = folder.path().join("memset");
    compile(&root().join("examples/memset.c"), &memset);
    let printed = run(Command::new(&memset).arg("4096")).stdout;
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("tw_memset / memset: "), "{printed}");
    let program = folder.path().join("pingpong");
    compile(&root().join("examples/pingpong.c"), &program);
    let pingpong = |role: &str| {
        let mut command = Command::new(&program);
        command.arg(role).arg(folder.path()).args(["hybrid", "100", "3", "100"]);
        command
    };
    let mut pong = pingpong("pong").spawn().unwrap();
    let printed = String::from_utf8(run(&mut pingpong("ping")).stdout).unwrap();
    assert!(printed.contains(" ns ["), "{printed}");
    assert!(pong.wait().unwrap().success());
}

#[test]
fn the_header_is_cpp_too() {
    if !is_installed("c++") {
        return skip("capi/c++", "no C++ compiler is installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.cpp");
    let text = "#include <thalweg.h>\nint main() { tw_transfer_options o = TW_TRANSFER_OPTIONS_INIT; \
                tw_channel_options c = TW_CHANNEL_OPTIONS_INIT; tw_bulk_options b = TW_BULK_OPTIONS_INIT; \
                return o.needs == TW_DEFAULT_NEEDS && b.needs == o.needs && c.wait == TW_WAIT_HYBRID && \
                TW_FOREVER > TW_NOW ? 0 : 1; }\n";
    fs::write(&source, text).unwrap();
    let program = folder.path().join("header");
    run(Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program));
    run(&mut Command::new(program));
}

/// Returns the names of the functions and variables that the header declares and the library exports.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(root().join("include/thalweg.h")).unwrap();
    let mut all = BTreeSet::new();
    for line in header.lines() {
        // Skip inline functions and macros, because they are compiled into their callers.
        if line.starts_with("static ") || line.starts_with("#define ") {
            continue;
        }
        let data = line.strip_prefix("extern ");
        let is_data = data.is_some();
        // If a variable has a struct type, its name comes after the name of the type.
        let typed = data.and_then(|line| line.strip_prefix("struct ")?.split_once(' '));
        let line = typed.map_or(line, |(_, name)| name);
        // The split at the asterisk of `char *tw_version(` yields the name. The `tw_version()` in a comment yields a
        // name that is already known.
        for word in line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '(')) {
            let name = word.split_once('(').map(|(name, _)| name).or(is_data.then_some(word));
            all.extend(name.filter(|name| name.starts_with("tw_")).map(str::to_owned));
        }
    }
    all
}

/// Returns all symbols of the version map, each with its version as `nm` prints it.
fn versioned() -> BTreeSet<String> {
    let map = fs::read_to_string(root().join("thalweg.map")).unwrap();
    let (mut node, mut all) = ("", BTreeSet::new());
    for line in map.lines().map(str::trim) {
        match line.strip_suffix(" {").or(line.strip_suffix(';')) {
            Some(name) if name.starts_with("THALWEG_") => node = name,
            Some(name) if name.starts_with("tw_") => drop(all.insert(format!("{name}@@{node}"))),
            _ => {}
        }
    }
    all
}

#[test]
fn the_symbols_file_of_debian_lists_every_function() {
    let list = fs::read_to_string(root().join("../../debian/libthalweg0.symbols")).unwrap();
    let told = list.lines().filter_map(|line| line.strip_prefix(" tw_")?.split_once(' '));
    let told: BTreeSet<String> =
        told.map(|(name, _)| format!("tw_{}", name.replace('@', "@@"))).collect();
    assert_eq!(told, versioned(), "left: debian/libthalweg0.symbols; right: thalweg.map");
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libthalweg.so.0");
    run(Command::new(root().join("link")).arg(archive()).arg(&library));
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().last());
    // `nm` also lists the versions themselves, as absolute symbols. Skip them.
    let functions = names.filter(|name| !name.starts_with("THALWEG_"));
    let exported: BTreeSet<String> = functions.map(str::to_owned).collect();
    let names: BTreeSet<String> =
        exported.iter().filter_map(|name| Some(name.split_once("@@")?.0.to_owned())).collect();
    assert_eq!(names, declared(), "left: the library; right: the header");
    assert_eq!(exported, versioned(), "left: the library; right: its map");
    let program = folder.path().join("kernels");
    run(Command::new("cc")
        .arg("-I")
        .arg(root().join("include"))
        .args([root().join("examples/kernels.c"), library])
        .arg("-o")
        .arg(&program));
    run(Command::new(program).env("LD_LIBRARY_PATH", folder.path()));
}

/// Tests the statement of docs/reference/c.md that its programs compile and run.
#[test]
fn the_programs_in_the_guide_compile_and_run() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in guide::programs_in_c() {
        let source = folder.path().join(format!("{name}.c"));
        fs::write(&source, text).unwrap();
        let program = source.with_extension("");
        compile(&source, &program);
        run(Command::new(&program)
            .current_dir(folder.path())
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("THALWEG_PROFILE", folder.path().join("none")));
    }
}
