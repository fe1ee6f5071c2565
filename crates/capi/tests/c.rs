#![allow(clippy::unwrap_used)]
//! The C ABI from C: programs built with every warning an error, under valgrind where it is
//! installed, and the header against the library's symbols and layout.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// libthalweg.a, built by cargo: for a test of the whole workspace cargo makes the rlib alone.
fn archive() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .args(["build", "--locked", "--quiet", "--package", env!("CARGO_PKG_NAME")])
            .arg("--manifest-path")
            .arg(root().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder")));
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug").join("libthalweg.a")
    };
    BUILT.get_or_init(build).clone()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
    output
}

fn compile(source: &Path, to: &Path, flags: &[&str]) {
    let include = root().join("include");
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include)
        .arg(source)
        .arg(archive())
        .args(SYSTEM)
        .args(flags)
        .arg("-o")
        .arg(to));
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(list) = env::var_os("THALWEG_SKIPS") {
        use std::io::Write;
        let file = fs::File::options().append(true).create(true).open(list);
        let written = file.and_then(|mut file| writeln!(file, "{test}\t{reason}"));
        written.expect("the list of what was skipped");
    }
}

#[test]
fn c_programs_do_what_the_header_says() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["transfer", "kernels"] {
        let program = folder.path().join(name);
        compile(&root().join(format!("tests/c/{name}.c")), &program, &[]);
        run(Command::new(&program).arg(folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name} left something");
        fs::remove_file(program).unwrap();
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !is_installed("valgrind") {
        return skip("capi/valgrind", "valgrind is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("transfer");
    compile(&root().join("tests/c/transfer.c"), &program, &[]);
    run(Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(&program)
        .arg(folder.path()));
}

#[test]
fn the_examples_build_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let transfer = folder.path().join("transfer");
    compile(&root().join("examples/transfer.c"), &transfer, &[]);
    let input = folder.path().join("input");
    fs::write(&input, vec![7; 100_000]).unwrap();
    let output = folder.path().join("output");
    run(Command::new(&transfer)
        .env("THALWEG_PROFILE", folder.path().join("none"))
        .stdin(fs::File::open(&input).unwrap())
        .stdout(fs::File::create(&output).unwrap()));
    assert_eq!(fs::read(output).unwrap(), fs::read(input).unwrap());
    let kernels = folder.path().join("kernels");
    compile(&root().join("examples/kernels.c"), &kernels, &[]);
    let printed = String::from_utf8(run(&mut Command::new(&kernels)).stdout).unwrap();
    assert!(printed.contains("libc") && printed.contains("crc32c"), "{printed}");
}

#[test]
fn the_header_is_cpp_too() {
    if !is_installed("c++") {
        return skip("capi/c++", "no C++ compiler is installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.cpp");
    let text = "#include <thalweg.h>\nint main() { tw_transfer_options o = TW_TRANSFER_OPTIONS_INIT; \
                return o.needs == TW_DEFAULT_NEEDS ? 0 : 1; }\n";
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

/// Every function of the header, by its name.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(root().join("include/thalweg.h")).unwrap();
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '('));
    let calls = words.filter_map(|word| word.split_once('(').map(|(name, _)| name));
    // `*tw_version(` was split at the asterisk; prose says `tw_version()` of the same functions.
    calls.filter(|name| name.starts_with("tw_")).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libthalweg.so.0");
    run(Command::new(root().join("link")).arg(archive()).arg(&library));
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().last());
    // The version itself is listed as an absolute symbol.
    let functions = names.filter(|name| !name.starts_with("THALWEG_"));
    let exported: BTreeSet<String> = functions.map(str::to_owned).collect();
    let versioned = declared().into_iter().map(|name| name + "@@THALWEG_0.1").collect();
    assert_eq!(exported, versioned, "left: the library; right: the header");
    let program = folder.path().join("kernels");
    run(Command::new("cc")
        .arg("-I")
        .arg(root().join("include"))
        .args([root().join("examples/kernels.c"), library])
        .arg("-o")
        .arg(&program));
    run(Command::new(program).env("LD_LIBRARY_PATH", folder.path()));
}

#[test]
fn c_and_rust_agree_about_every_field() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("layout");
    compile(&root().join("tests/c/layout.c"), &program, &[]);
    let printed = String::from_utf8(run(&mut Command::new(program)).stdout).unwrap();
    let rust: Vec<String> =
        thalweg::layout().iter().map(|(name, number)| format!("{name} {number}")).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), rust);
}
