//! Installs the C library in a directory that the loader does not search. Then builds programs of docs/reference/c.md with pkg-config and
//! with CMake, as that page describes.

use crate::support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};
use support::{archive, guide, is_installed, root, run, skip};
use tempfile::TempDir;

/// Returns the prefix of an installation in the build directory. Installs only once for all tests.
fn prefix() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let _ = fs::remove_dir_all(&prefix);
        run(Command::new(root().join("install"))
            .arg(archive())
            .args([env!("CARGO_PKG_VERSION"), ""])
            .arg(&prefix)
            .env("SYMBOLS", prefix.join("symbols")));
        prefix
    })
}

/// Writes the programs of the page to a directory, and returns their names.
fn guide_in(folder: &TempDir) -> Vec<String> {
    let write = |(name, text): (String, String)| {
        fs::write(folder.path().join(format!("{name}.c")), text).unwrap();
        name
    };
    guide::programs_in_c().into_iter().map(write).collect()
}

/// Runs a program of the page as a user would, without a path to the library.
fn start(program: &Path, folder: &TempDir) {
    run(Command::new(program)
        .current_dir(folder.path())
        .env_remove("LD_LIBRARY_PATH")
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("THALWEG_PROFILE", folder.path().join("none")));
}

#[test]
fn programs_of_the_guide_run_as_written_after_an_installation() {
    if !is_installed("pkg-config") {
        return skip("capi/pkg-config", "pkg-config is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(root().join("../../docs/reference/c.md")).unwrap();
    let written = "cc program.c $(pkg-config --cflags --libs thalweg) -o program";
    assert!(page.contains(written), "docs/reference/c.md builds otherwise by now");
    for name in guide_in(&folder) {
        run(Command::new("bash")
            .args(["-ec", &written.replace("program", &name)])
            .current_dir(folder.path())
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
        start(&folder.path().join(name), &folder);
    }
}

#[test]
fn cmake_finds_the_package_and_its_programs_run() {
    if !is_installed("cmake") {
        return skip("capi/cmake", "CMake is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let block = &guide::blocks("c.md", "cmake")[0];
    let (head, lines) = block.split_once("add_executable").unwrap();
    let lines = format!("add_executable{lines}");
    let mut project = head.to_owned();
    let names = guide_in(&folder);
    for name in &names {
        project += &lines.replace("program", name);
        project += &lines
            .replace("(program program", &format!("({name}-static {name}"))
            .replace("(program ", &format!("({name}-static "))
            .replace("thalweg::thalweg", "thalweg::static");
    }
    fs::write(folder.path().join("CMakeLists.txt"), project).unwrap();
    run(Command::new("cmake")
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))
        .args(["-S", ".", "-B", "build"])
        .current_dir(folder.path()));
    run(Command::new("cmake").args(["--build", "build"]).current_dir(folder.path()));
    for name in names {
        start(&folder.path().join("build").join(&name), &folder);
        start(&folder.path().join("build").join(format!("{name}-static")), &folder);
    }
}

#[test]
fn cmake_refuses_a_version_that_is_not_installed() {
    if !is_installed("cmake") {
        return skip("capi/cmake version", "CMake is not installed");
    }
    for wanted in ["0.2", "0.0.9", "1.0"] {
        let folder = tempfile::tempdir().unwrap();
        let block = guide::blocks("c.md", "cmake")[0]
            .replace("0.1 REQUIRED", &format!("{wanted} REQUIRED"));
        fs::write(folder.path().join("CMakeLists.txt"), block).unwrap();
        let refused = Command::new("cmake")
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))
            .args(["-S", ".", "-B", "build"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        let ours = concat!("version: ", env!("CARGO_PKG_VERSION"));
        assert!(!refused.status.success() && told.contains(ours), "{wanted}: {told}");
    }
}

#[test]
fn python_calls_the_library_as_the_guide_says() {
    if !is_installed("python3") {
        return skip("capi/python", "python3 is not installed");
    }
    let library = prefix().join("lib");
    let programs = guide::blocks("c.md", "python");
    let told = programs.iter().flat_map(|text| {
        run(Command::new("python3").args(["-c", text]).env("LD_LIBRARY_PATH", &library)).stdout
    });
    let told: Vec<u8> = told.collect();
    assert_eq!(told, concat!("hello\nthalweg ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
}

#[test]
fn the_examples_are_installed_and_compile() {
    if !is_installed("pkg-config") {
        return skip("capi/examples", "pkg-config is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let examples = prefix().join("share/doc/thalweg/examples");
    let count = fs::read_dir(&examples).unwrap().count();
    assert_eq!(count, fs::read_dir(root().join("examples")).unwrap().count());
    for example in fs::read_dir(&examples).unwrap() {
        let build = "cc \"$1\" $(pkg-config --cflags --libs thalweg) -o example";
        run(Command::new("bash")
            .args(["-ec", build, "bash"])
            .arg(example.unwrap().path())
            .current_dir(folder.path())
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    }
}

#[test]
fn what_is_installed_has_its_debugging_symbols_beside_it() {
    let version = env!("CARGO_PKG_VERSION");
    let library = prefix().join(format!("lib/libthalweg.so.{version}"));
    let sections = |file: &Path| {
        let listed = run(Command::new("readelf").args(["-S", "--wide"]).arg(file)).stdout;
        String::from_utf8_lossy(&listed).into_owned()
    };
    let installed = sections(&library);
    assert!(installed.contains(".gnu_debuglink") && !installed.contains(".debug_info"));
    let at = library.strip_prefix("/").unwrap().to_str().unwrap();
    let symbols = prefix().join(format!("symbols/{at}.debug"));
    assert!(sections(&symbols).contains(".debug_info"));
}
