//! JDKs of this machine, and Java programs run with them.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The first that memory access and system calls from Java are final in.
const LEAST: u32 = 25;

/// The feature release of a JDK, from the file that every JDK has.
fn release(home: &Path) -> Option<u32> {
    let text = fs::read_to_string(home.join("release")).ok()?;
    let told = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    told.split(['.', '"', '-', '+']).next()?.parse().ok()
}

/// A JDK of this machine whose release is wanted.
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

/// The folder of the Java module.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../java")
}

/// The other end for these tests, compiled once: the JDK and the folder of its classes.
fn peer() -> Option<&'static (PathBuf, PathBuf)> {
    static PEER: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let compile = || {
        let jdk = jdk(|release| release >= LEAST)?;
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-peer");
        let _ = fs::remove_dir_all(&classes);
        let (main, test) = (sources().join("src/main/java"), sources().join("src/test/java"));
        let path = [main.as_os_str(), test.as_os_str()].join(OsStr::new(":"));
        let status = Command::new(jdk.join("bin/javac"))
            .args(["-nowarn", "-d"])
            .arg(&classes)
            .arg("-sourcepath")
            .arg(path)
            .arg(test.join("dev/thalweg/ring/Peer.java"))
            .status();
        assert!(
            status.unwrap().success(),
            "javac of java/src/test/java/dev/thalweg/ring/Peer.java"
        );
        Some((jdk, classes))
    };
    PEER.get_or_init(compile).as_ref()
}

/// A running JVM, ended when dropped.
pub struct Jvm {
    child: Child,
    out: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Jvm {
    /// The peer of `java/src/test`, with its words; `None`, counted as a skip, without a JDK.
    pub fn peer(test: &str, words: &str, place: &Path) -> Option<Self> {
        let Some((jdk, classes)) = peer() else {
            crate::skip::skip(
                test,
                &format!("no JDK {LEAST} or later in $JAVA_HOME or /usr/lib/jvm"),
            );
            return None;
        };
        let mut command = Command::new(jdk.join("bin/java"));
        command.args(["-XX:+UseSerialGC", "--enable-native-access=ALL-UNNAMED", "-cp"]);
        command.arg(classes).arg("dev.thalweg.ring.Peer");
        let place = place.join("ring");
        command.args(
            words
                .split(' ')
                .map(|word| if word == "PATH" { place.to_str().unwrap() } else { word }),
        );
        Some(Self::start(command))
    }

    pub fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Self { child, out, input }
    }

    /// The next line that it writes. It ends by itself if nothing happens for long.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Writes a line for it to read.
    pub fn tell(&mut self, line: &str) {
        thalweg_sys::io::write(&self.input, format!("{line}\n").as_bytes()).unwrap();
    }

    /// Its last line, once it has ended well.
    pub fn finish(mut self) -> String {
        let mut last = String::new();
        for line in self.out.by_ref().lines() {
            last = line.unwrap();
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the JVM ended with {status} after {last:?}");
        last
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // One that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
