//! Runs Java programs for tests.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use thalweg_testing::jdk;

/// A running JVM. Dropping it kills the JVM.
pub struct Jvm {
    child: Child,
    out: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Jvm {
    /// Starts the class `Peer` of `java/src/test` with these words as arguments. Without a JDK,
    /// counts a skip and returns `None`.
    pub fn peer(test: &str, words: &str, place: &Path) -> Option<Self> {
        let many = |word: &str| word.parse::<u64>().is_ok_and(|count| count > 50_000);
        let Some(mut command) = jdk::peer(!words.split(' ').any(many)) else {
            thalweg_testing::skip(test, &jdk::none());
            return None;
        };
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

    /// Returns the next line that the JVM prints. The JVM ends by itself if it waits too long, so
    /// this call does not hang.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Writes a line to the standard input of the JVM.
    pub fn tell(&mut self, line: &str) {
        thalweg_sys::io::write(&self.input, format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits until the JVM has exited with success, and returns its last line.
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
        // Errors are ignored, because the JVM may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
