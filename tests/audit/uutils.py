"""Creates a Rust package in a directory. Its tests are those of uutils' coreutils for cp, with `thalweg copy` as cp.

    uutils.py SOURCE FOLDER

FOLDER/thalweg is the command, and FOLDER/coreutils the program that the package builds.
"""

import pathlib
import re
import shutil
import sys

MANIFEST = """
[package]
name = "foreign"
version = "0.0.0"
edition = "2021"
autotests = false

[[bin]]
name = "coreutils"
path = "cp.rs"

[[test]]
name = "cp"
path = "tests/cp.rs"

[dev-dependencies]
filetime = "0.2"
libc = "0.2"
nix = { version = "0.29", default-features = false, features = ["process", "signal", "user", "term"] }
pretty_assertions = "1"
rand = { version = "0.9", features = ["small_rng"] }
regex = "1"
rlimit = "0.10"
procfs = { version = "0.17", default-features = false }
tempfile = "3"
time = { version = "0.3", features = ["local-offset"] }
walkdir = "2"
xattr = "1"
uucore = { path = "uucore" }

[workspace]

[profile.dev]
debug = false
"""

# The tests call this program as `coreutils cp ARGUMENTS`. It runs all programs except cp from the system.
CP = """
use std::{env, os::unix::process::CommandExt, process::Command};

fn main() {
    let mut words = env::args_os().skip(1);
    let name = words.next().unwrap_or_default();
    let mut command = if name == "cp" {
        // The tests clear the environment.
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/thalweg"));
        command.arg("copy").env("THALWEG_NO_PROFILE", "1").env("THALWEG_QUIET", "1");
        command
    } else {
        Command::new(name)
    };
    panic!("{}", command.args(words).exec());
}
"""

# The items of uutils' library that the tests use.
UUCORE = """
pub fn util_name() -> &'static str { "cp" }
pub mod signals { pub fn signal_by_name_or_value(_: &str) -> Option<usize> { None } }
pub mod fs {
    use std::os::unix::fs::MetadataExt;
    pub fn display_permissions(metadata: &std::fs::Metadata, _: bool) -> String {
        let is_set = |n: u32| metadata.mode() & 0o400 >> n != 0;
        (0..9).map(|n| if is_set(n) { ['r', 'w', 'x'][n as usize % 3] } else { '-' }).collect()
    }
}
"""

# If this variable is set, the tests do not compare messages: standard error, and the lines of -v and --debug on standard output.
WORDS = r"(pub fn (?:std(?:err|out)_(?:is|is_bytes|contains|does_not_contain|matches|only|only_bytes)|no_output|no_stdout|usage_error)\b[^{]*\{\n)"
SKIP_WORDS = r'\1        if std::env::var_os("WORDLESS").is_some() { return self; }\n'


def main() -> None:
    source, folder = map(pathlib.Path, sys.argv[1:])
    (folder / "uucore/src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(MANIFEST)
    (folder / "cp.rs").write_text(CP)
    (folder / "uucore/Cargo.toml").write_text('[package]\nname = "uucore"\nversion = "0.0.0"\nedition = "2021"\n')
    (folder / "uucore/src/lib.rs").write_text(UUCORE)
    for name in ("tests/common", "tests/fixtures/cp"):
        shutil.copytree(source / name, folder / name, symlinks=True)
    text = (source / "tests/by-util/test_cp.rs").read_text()
    # Removes comparisons of access times, because a read may change the source's access time after it was copied.
    text = re.sub(r"assert_eq!\([^;]*atime[^;]*\);", "", text)
    (folder / "tests/test_cp.rs").write_text(text)
    (folder / "tests/cp.rs").write_text("#[macro_use]\nmod common;\nmod test_cp;\n")
    util = folder / "tests/common/util.rs"
    text = util.read_text()
    # Removes uutils' tests of its own test utilities.
    text = text[: text.index("/// Sanity checks for test utils\n#[cfg(test)]\nmod tests {")].replace('#[cfg(feature = "sleep")]\nuse rstest::rstest;\n', "")
    # Uses the program in the package's directory, because an unprivileged user may not be able to enter the build directory.
    text = text.replace('env!("CARGO_BIN_EXE_coreutils")', 'concat!(env!("CARGO_MANIFEST_DIR"), "/coreutils")')
    util.write_text(re.sub(WORDS, SKIP_WORDS, text))


main()
