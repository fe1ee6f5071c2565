//! Checks rules that the compiler does not check: dependencies between crates, the limits of unsafe code, file
//! length, and unfinished code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thalweg_architecture::circles::circles;

use thalweg_testing::skip;

/// A crate may depend only on crates in an earlier row.
const ROWS: &[&[&str]] = &[
    &["thalweg-testing"],
    &["thalweg-kernels", "thalweg-sys", "thalweg-architecture"],
    &["thalweg-core", "thalweg-preload"],
    &["thalweg-channel", "thalweg-tree"],
    &["thalweg-serve", "thalweg-measure"],
    &["thalweg", "thalweg-lab", "thalweg-capi", "thalweg-packets"],
    &["thalweg-cli", "thalweg-python", "thalweg-fuzzing"],
];

/// Crates that may contain unsafe code; all others forbid it in their roots. The preload crate replaces memcpy in
/// other programs, and can call neither libc nor std.
const MAY_BE_UNSAFE: &[&str] = &[
    "thalweg-kernels",
    "thalweg-sys",
    "thalweg-preload",
    "thalweg-channel",
    "thalweg-capi",
    "thalweg-packets",
    // The test `unsafe_code_of_python_stays_in_its_folder` limits the unsafe code of this crate to one directory.
    "thalweg-python",
];

/// Lock files of separate workspaces that depend on crates of this one.
const APART: &[&str] = &["peers/channel/Cargo.lock", "fuzz/Cargo.lock", "python/Cargo.lock"];

/// Manifests of the packages that must follow the rules for dependencies and unsafe code. The first is that of this
/// workspace. The second belongs to a separate workspace, so that builds here do not need Python.
const MANIFESTS: &[&str] = &["Cargo.toml", "python/Cargo.toml"];

const LONGEST_FILE: usize = 500;
const LONG_FILES: &str = "tests/long-files.txt";
const COUNTED: &[&str] = &["rs", "sh", "py", "c", "h", "java"];

#[test]
fn arrows_between_crates_point_one_way() {
    let mut wrong = Vec::new();
    for package in packages() {
        let name = text(&package["name"]);
        let own = row(name);
        for dependency in array(&package["dependencies"]) {
            // Dev-dependencies are unrestricted. The kind of a normal dependency is null.
            if dependency["kind"] == "dev" || dependency["path"].is_null() {
                continue;
            }
            let target = text(&dependency["name"]);
            if row(target) >= own {
                wrong.push(format!("{name} -> {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these arrows point the wrong way: {wrong:?}");
}

/// Without circles, the modules of a directory can be read in an order in which each uses only earlier ones.
#[test]
fn modules_of_a_folder_form_no_circle() {
    let mut wrong = String::new();
    for package in packages() {
        let name = text(&package["name"]);
        let manifest = Path::new(text(&package["manifest_path"]));
        for (folder, arrows) in circles(&manifest.with_file_name("src")) {
            wrong += &[name, " ", &folder, ":\n", &arrows].concat();
        }
    }
    assert!(wrong.is_empty(), "circles:\n{wrong}");
}

/// Builds of this workspace do not update the lock files of the separate workspaces. With an outdated lock file, the
/// next build there would fail because of `--locked`, or measure and fuzz other versions than those shipped.
#[test]
fn lock_files_beside_the_workspace_have_what_its_crates_depend_on_now() {
    let locked = |path: &str| -> Vec<toml::Table> {
        let lock: toml::Table = toml::from_str(&read(&root().join(path))).expect("a lock file");
        let packages = lock["package"].as_array().expect("packages").iter();
        packages.map(|package| package.as_table().expect("a package").clone()).collect()
    };
    let ours = locked("Cargo.lock");
    let packages = packages();
    let mut wrong = Vec::new();
    for path in APART {
        let theirs = locked(path);
        for member in theirs.iter().filter(|package| !package.contains_key("source")) {
            let Some(package) = packages.iter().find(|p| p["name"] == named(member)) else {
                continue;
            };
            let of = named(member);
            // The lock file of this workspace lacks packages that only the separate workspaces use.
            let shipped = versions(&ours, of);
            if !shipped.is_empty() && versions(&theirs, of) != shipped {
                wrong.push(format!("{path}: {of} has another version"));
            }
            let has = depends_on(member);
            let shipped = array(&package["dependencies"]).iter().filter(|d| d["kind"] != "dev");
            let (optional, needed): (Vec<&Value>, Vec<&Value>) =
                shipped.partition(|dependency| dependency["optional"] == true);
            for name in needed.iter().map(|dependency| text(&dependency["name"])) {
                if !has.contains(name) {
                    wrong.push(format!("{path}: {of} lacks {name}"));
                } else if !versions(&theirs, name).is_superset(&versions_of(&ours, of, name)) {
                    wrong.push(format!("{path}: {of} has {name} in another version"));
                }
            }
            let known: BTreeSet<&str> = optional
                .iter()
                .chain(&needed)
                .map(|dependency| text(&dependency["name"]))
                .collect();
            wrong.extend(
                has.difference(&known).map(|name| format!("{path}: {of} still has {name}")),
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "renew these with cargo update, --precise where it goes too far: {wrong:?}"
    );
}

fn named(package: &toml::Table) -> &str {
    package["name"].as_str().expect("a name")
}

/// Returns the names from `NAME` or `NAME VERSION` in a lock file.
fn depends_on(package: &toml::Table) -> BTreeSet<&str> {
    let listed = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
    listed.filter_map(|line| line.as_str()?.split(' ').next()).collect()
}

fn versions<'l>(lock: &'l [toml::Table], name: &str) -> BTreeSet<&'l str> {
    let named = lock.iter().filter(|package| named(package) == name);
    named.filter_map(|package| package["version"].as_str()).collect()
}

/// Returns the version that a package depends on, if the lock file has several.
fn versions_of<'l>(lock: &'l [toml::Table], package: &str, name: &str) -> BTreeSet<&'l str> {
    let member = lock.iter().find(|found| named(found) == package);
    let listed = member.and_then(|member| member.get("dependencies")?.as_array());
    let mut lines = listed.into_iter().flatten().filter_map(toml::Value::as_str);
    match lines.find_map(|line| line.split_once(' ').filter(|(found, _)| *found == name)) {
        Some((_, version)) => [version].into(),
        None => versions(lock, name),
    }
}

#[test]
fn unsafe_code_stays_behind_its_fence() {
    let mut open = Vec::new();
    for package in packages() {
        if MAY_BE_UNSAFE.contains(&text(&package["name"])) {
            continue;
        }
        for target in array(&package["targets"]) {
            let is_root = array(&target["kind"])
                .iter()
                .any(|kind| matches!(text(kind), "lib" | "rlib" | "cdylib" | "staticlib" | "bin"));
            let path = text(&target["src_path"]);
            if is_root && !read(Path::new(path)).lines().any(|l| l == "#![forbid(unsafe_code)]") {
                open.push(path.to_owned());
            }
        }
    }
    assert!(open.is_empty(), "these crate roots do not forbid unsafe code: {open:?}");
}

/// In the Python package, only one directory contains unsafe code: the one for memory shared with Python.
#[test]
fn unsafe_code_of_python_stays_in_its_folder() {
    let Some(tracked) = tracked("unsafe_code_of_python_stays_in_its_folder") else { return };
    let sources: Vec<_> = tracked.iter().filter(|path| path.starts_with("python/src/")).collect();
    assert!(sources.iter().any(|path| path.starts_with("python/src/memory/")), "{sources:?}");
    let outside = sources.iter().filter(|path| !path.starts_with("python/src/memory/"));
    for path in outside {
        let text = read(&root().join(path));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let open = code.into_iter().find(|line| {
            line.contains("unsafe ") || line.contains("unsafe_code") && !line.contains("deny(")
        });
        assert_eq!(open, None, "{path}");
    }
    let lib = read(&root().join("python/src/lib.rs"));
    assert!(lib.lines().any(|line| line == "#![deny(unsafe_code)]"), "{lib}");
}

#[test]
fn files_are_short_or_say_why_not() {
    let Some(tracked) = tracked("files_are_short_or_say_why_not") else { return };
    let list = read(&root().join(LONG_FILES));
    let mut allowed = BTreeSet::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (path, reason) = line.split_once(' ').unwrap_or((line, ""));
        assert!(!reason.trim().is_empty(), "{LONG_FILES}: {path} is there without a reason");
        allowed.insert(path.to_owned());
    }
    let long: BTreeSet<String> = tracked
        .into_iter()
        .filter(|path| has_extension(Path::new(path), COUNTED))
        .filter(|path| read(&root().join(path)).lines().count() > LONGEST_FILE)
        .collect();
    let unexplained: Vec<_> = long.difference(&allowed).collect();
    assert!(
        unexplained.is_empty(),
        "over {LONGEST_FILE} lines and not in {LONG_FILES}: {unexplained:?}"
    );
    let stale: Vec<_> = allowed.difference(&long).collect();
    assert!(stale.is_empty(), "in {LONG_FILES} but gone or short by now: {stale:?}");
}

/// Directories with one mechanism per file: mechanisms between endpoints, and mechanisms between processes.
const MECHANISMS: &[&str] = &["crates/core/src/mechanisms/", "crates/channel/src/bulk/mechanisms/"];

/// Returns the name of a mechanism from the path of its file.
fn mechanism_at(path: &str) -> Option<&str> {
    let inside = MECHANISMS.iter().find_map(|folder| path.strip_prefix(folder));
    inside?.strip_suffix(".rs")
}

/// Code must not distinguish mechanisms by name, so that a new mechanism is treated like the others.
#[test]
fn no_code_asks_for_a_mechanism_by_its_name() {
    let test = "no_code_asks_for_a_mechanism_by_its_name";
    let Some(tracked) = tracked(test) else { return };
    let files = tracked.iter().filter_map(|path| mechanism_at(path));
    let names: BTreeSet<String> = files.map(|name| name.replace('_', "-")).collect();
    assert!(names.len() > 20, "{names:?}");
    // `null` and `pipe` are also kinds of endpoints, so these names are allowed.
    let names = names.iter().filter(|name| !["mod", "null", "pipe"].contains(&name.as_str()));
    let asking: Vec<String> = names
        .flat_map(|name| {
            let asked = [format!("== \"{name}\""), format!("!= \"{name}\"")];
            asked.into_iter().chain([format!("\"{name}\" =>"), format!("\"{name}\" |")])
        })
        .collect();
    let mut found = Vec::new();
    let is_product = |path: &&String| {
        path.starts_with("crates/")
            && path.contains("/src/")
            && has_extension(Path::new(path), &["rs"])
            && !path.contains("/tests/")
            && !path.ends_with("/tests.rs")
    };
    for path in tracked.iter().filter(is_product) {
        let text = read(&root().join(path));
        let lines: Vec<&str> = text.lines().collect();
        let tests = lines.windows(2).position(|two| {
            two[0].trim() == "#[cfg(test)]" && two[1].contains("mod ") && two[1].ends_with('{')
        });
        for (number, line) in lines[..tests.unwrap_or(lines.len())].iter().enumerate() {
            if asking.iter().any(|asked| line.contains(asked)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "by name:\n{}", found.join("\n"));
}

#[test]
fn nothing_is_left_half_done() {
    let Some(tracked) = tracked("nothing_is_left_half_done") else { return };
    // The string is split in two, so that this file does not match.
    let needles = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimpl", "emented!"),
        concat!("to", "do!"),
    ];
    let mut found = Vec::new();
    for path in tracked.iter().filter(|path| is_source(Path::new(path))) {
        for (number, line) in read(&root().join(path)).lines().enumerate() {
            if needles.iter().any(|needle| line.contains(needle)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "half done:\n{}", found.join("\n"));
}

#[test]
fn what_contributing_shows_stands_in_the_sources() {
    let source = |path: &str| read(&root().join(path));
    let page = source("CONTRIBUTING.md");
    let blocks = |kind: &str| -> Vec<String> {
        let begin = format!("```{kind}\n");
        let rest = page.split(&begin).skip(1);
        rest.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
    };
    let mechanism = source("crates/core/src/mechanisms/copy_file_range.rs");
    assert_eq!(blocks("rust"), [mechanism], "the file that is shown");
    let diffs = blocks("diff");
    assert!(diffs.len() >= 4, "{}", diffs.len());
    for diff in diffs {
        let path = diff.lines().find_map(|line| line.strip_prefix("+++ b/")).unwrap();
        let file = source(path);
        let hunks = diff.split("\n@@").skip(1);
        for hunk in hunks {
            let (heading, lines) = hunk.split_once('\n').unwrap();
            let lines: Vec<&str> = lines.lines().filter_map(|line| line.get(1..)).collect();
            for shown in [heading.trim(), &lines.join("\n")] {
                assert!(file.contains(shown), "{path} has not:\n{shown}");
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

/// Returns the packages of these workspaces from `cargo metadata`.
fn packages() -> Vec<Value> {
    let mut packages = Vec::new();
    for manifest in MANIFESTS {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .args(["--manifest-path", manifest])
            .current_dir(root())
            .output()
            .expect("cargo metadata");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value =
            serde_json::from_slice(&output.stdout).expect("JSON from cargo metadata");
        let found = array(&metadata["packages"]);
        assert!(!found.is_empty(), "cargo metadata lists no package in {manifest}");
        packages.extend_from_slice(found);
    }
    packages
}

fn row(name: &str) -> usize {
    ROWS.iter()
        .position(|row| row.contains(&name))
        .unwrap_or_else(|| panic!("{name} has no place among the crates: give it one in ROWS"))
}

/// Returns all files tracked by git, relative to the root; `None`, recorded as a skip, outside a checkout.
fn tracked(test: &str) -> Option<Vec<String>> {
    let root = root();
    let output = Command::new("git")
        // The tests may run as root in another user's checkout, which git refuses to read without this.
        .arg("-c")
        .arg(format!("safe.directory={}", root.display()))
        .args(["ls-files", "-z"])
        .current_dir(&root)
        .output();
    let reason = match output {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8(output.stdout).expect("names in UTF-8");
            let present = names.split_terminator('\0').filter(|path| root.join(path).is_file());
            return Some(present.map(str::to_owned).collect());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(test, &format!("git ls-files: {reason}"));
    None
}

/// Returns `true` for source files: by extension, or by the `#!` of a script.
fn is_source(path: &Path) -> bool {
    match path.extension() {
        Some(_) => has_extension(path, COUNTED) || has_extension(path, &["toml"]),
        None => fs::read(root().join(path)).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

fn has_extension(path: &Path, any_of: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| any_of.contains(&e))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string from cargo metadata")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list from cargo metadata")
}
