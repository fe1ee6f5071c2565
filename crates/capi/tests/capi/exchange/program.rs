//! The other end: a program in another language, ended with the test.

use crate::support::{compile, root, skip};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use thalweg_testing::jdk;
use thalweg_testing::message;

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Java,
    Python,
}

impl Language {
    /// Whether it can run on this machine; that it cannot is counted as a skip.
    pub fn is_here(self, test: &str) -> bool {
        let reason = match self {
            Self::C => None,
            Self::Java => jdk::peer(true).is_none().then(jdk::none),
            Self::Python => python_is_missing(),
        };
        if let Some(reason) = &reason {
            skip(&format!("{test} {self:?}"), reason);
        }
        reason.is_none()
    }

    /// Starts it with a socket in this folder; with the option `listen` it listens there already.
    pub fn start(self, folder: &Path, role: &str, count: u64, options: &[&str]) -> Program {
        let mut command = self.command(role, &folder.join("socket"), count, options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, output };
        if options.contains(&"listen") {
            program.hear("ready");
        }
        program
    }

    /// The program, told in the words of `c/partner.c`.
    fn command(self, role: &str, place: &Path, count: u64, options: &[&str]) -> Command {
        let mut command = match self {
            Self::C => Command::new(partner()),
            Self::Python => {
                let mut python = Command::new("python3");
                python.arg(root().join("../../tests/vectors/partner.py"));
                python
            }
            Self::Java => return java(role, place, count, options),
        };
        command.arg(role).arg(place).arg(count.to_string()).args(options);
        command
    }
}

/// The program in C, compiled once.
fn partner() -> &'static Path {
    static PARTNER: OnceLock<PathBuf> = OnceLock::new();
    PARTNER.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("partner");
        compile(&root().join("tests/c/partner.c"), &program);
        program
    })
}

fn python_is_missing() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the ends in Python need x86-64: tests/vectors/ring.py says why".to_owned());
    }
    let probe = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    let found = Command::new("python3").args(probe).status().is_ok_and(|status| status.success());
    (!found).then(|| "no python3, or one before 3.10".to_owned())
}

/// The peer of `java/src/test`, which has words of its own.
fn java(role: &str, place: &Path, count: u64, options: &[&str]) -> Command {
    let (role, count) = match (role, count) {
        ("send", 1..) => ("produce", count.to_string()),
        ("send", 0) => ("produce", "-1".to_owned()),
        _ => ("consume", "-1".to_owned()),
    };
    let meets = if options.contains(&"listen") { "host" } else { "connect" };
    // The size of its ring is its own affair.
    let words = options.iter().filter(|word| **word != "listen" && !word.starts_with("capacity="));
    // What the second compiler makes of it is tried in crates/channel.
    let mut command = jdk::peer(true).unwrap();
    command.args([role, meets]).arg(place).arg(count);
    command.args(words.map(|word| word.trim_start_matches("wait=")));
    command
}

pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Waits until its channel is open.
    pub fn opened(&mut self) {
        self.hear("open");
    }

    fn hear(&mut self, due: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), due);
    }

    /// Waits for its end, which must be a good one.
    pub fn finish(mut self) -> Told {
        let last = self.output.by_ref().lines().last().transpose().unwrap().unwrap_or_default();
        assert!(self.child.wait().unwrap().success(), "after {last:?}");
        Told::parse(&last)
    }

    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last line of a program.
#[derive(Debug)]
pub struct Told {
    end: String,
    messages: u64,
    /// Of all bytes; not every language says it.
    crc: Option<u32>,
}

impl Told {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (end, messages, crc, partial) = match words[..] {
            [_, end, messages, crc, partial] => (end, messages, crc, partial),
            // Java
            ["sent", messages] => ("done", messages, "-", "0"),
            ["closed", messages] => ("closed", messages, "-", "0"),
            ["died", messages, partial] => ("died", messages, "-", partial),
            _ => panic!("{line:?} is no last line"),
        };
        assert_eq!(partial, "0", "partial: {line}");
        Self {
            end: end.to_owned(),
            messages: messages.parse().unwrap(),
            crc: u32::from_str_radix(crc, 16).ok(),
        }
    }

    /// It ended like this, after the first so many messages.
    pub fn assert(&self, end: &str, messages: u64) {
        assert_eq!((&self.end[..], self.messages), (end, messages));
        if let Some(crc) = self.crc {
            assert_eq!(crc, crc_of(messages), "{self:?}");
        }
    }

    /// The other side was killed. A sender is told of the messages that were released.
    pub fn assert_died(&self, role: &str) {
        assert_eq!(self.end, "died", "{self:?}");
        if role == "receive" {
            self.assert("died", self.messages);
        }
    }
}

/// The CRC-32C of the first messages, one behind the other.
pub fn crc_of(messages: u64) -> u32 {
    let mut bytes = Vec::new();
    (0..messages).fold(0, |crc, seq| {
        message(seq, &mut bytes);
        thalweg_kernels::crc32c(&bytes, crc)
    })
}
