//! Finds JDKs on this machine, and compiles the Java program `Peer` (in `java/src/test`), which tests use as the other
//! end of a channel.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The first release in which the Java APIs for memory access and system calls are final.
const LEAST: u32 = 25;

/// Returns the reason to skip a test that needs a JDK, if none was found.
pub fn none() -> String {
    format!("no JDK {LEAST} or later in $JAVA_HOME or /usr/lib/jvm")
}

/// Returns the feature release of a JDK, from its `release` file.
fn release(home: &Path) -> Option<u32> {
    let text = fs::read_to_string(home.join("release")).ok()?;
    let told = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    told.split(['.', '"', '-', '+']).next()?.parse().ok()
}

/// Returns a JDK on this machine with a feature release that `wanted` accepts. `JAVA_HOME` comes first.
pub fn jdk(wanted: impl Fn(u32) -> bool) -> Option<PathBuf> {
    let told = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let mut homes: Vec<PathBuf> = fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    homes.sort();
    let usable =
        |home: &PathBuf| home.join("bin/javac").exists() && release(home).is_some_and(&wanted);
    told.into_iter().chain(homes).find(usable)
}

/// Options for short Java programs, including compilers. Without them, the second JIT compiler and a collector
/// with several threads would take most of the running time.
pub const SHORT: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Returns a command for the compiler of a JDK, without arguments.
pub fn javac(jdk: &Path) -> Command {
    let mut command = Command::new(jdk.join("bin/javac"));
    command.args(SHORT.map(|word| format!("-J{word}")));
    command
}

/// Returns the directory of the Java module.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../java")
}

/// Returns the time of the newest file or directory in this directory, in nanoseconds since 1970.
fn newest(folder: &Path) -> u128 {
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = |path: &Path| time(path)?.duration_since(std::time::UNIX_EPOCH).ok();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = entries.map(|path| if path.is_dir() { newest(&path) } else { nanos(since(&path)) });
    below.max().unwrap_or(0).max(nanos(since(folder)))
}

fn nanos(time: Option<std::time::Duration>) -> u128 {
    time.map_or(0, |time| time.as_nanos())
}

/// Returns a command for the peer, without arguments; `None` without a JDK. The peer is compiled only after a change of
/// the sources.
pub fn peer(short: bool) -> Option<Command> {
    static PEER: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let compile = || {
        let jdk = jdk(|release| release >= LEAST)?;
        let (main, test) = (sources().join("src/main/java"), sources().join("src/test/java"));
        // All test binaries share the classes. The name of their directory changes with the JDK and the sources.
        let name = format!(
            "java-peer-{}-{}",
            jdk.file_name()?.to_string_lossy(),
            newest(&main).max(newest(&test))
        );
        let classes = std::env::current_exe().ok()?.with_file_name(&name);
        if classes.exists() {
            return Some((jdk, classes));
        }
        let made = classes.with_file_name(format!("{name}.{}", std::process::id()));
        let path = [main.as_os_str(), test.as_os_str()].join(OsStr::new(":"));
        let status = javac(&jdk)
            .args(["-nowarn", "-d"])
            .arg(&made)
            .arg("-sourcepath")
            .arg(path)
            .arg(test.join("dev/thalweg/ring/Peer.java"))
            .status();
        assert!(
            status.expect("javac runs").success(),
            "javac of java/src/test/java/dev/thalweg/ring/Peer.java"
        );
        // Another test binary may have been faster.
        if fs::rename(&made, &classes).is_err() {
            let _ = fs::remove_dir_all(&made);
        }
        Some((jdk, classes))
    };
    let (jdk, classes) = PEER.get_or_init(compile).as_ref()?;
    let mut command = Command::new(jdk.join("bin/java"));
    command.args(if short { &SHORT[..] } else { &SHORT[1..] });
    command.args(["--enable-native-access=ALL-UNNAMED", "-cp"]);
    command.arg(classes).arg("dev.thalweg.ring.Peer");
    Some(command)
}
