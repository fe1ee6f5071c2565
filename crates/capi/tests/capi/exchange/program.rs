//! The peer of an exchange: a program in another language, which is killed when the test ends.

use crate::support::{compile, root, skip};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use thalweg_testing::jdk;
use thalweg_testing::message;

/// Language of the other program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Java,
    Python,
}

impl Language {
    /// Returns `true` if the language is installed. If it is not, counts a skip.
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

    /// Starts a program with a socket in this directory. With the option `listen`, returns only
    /// when the program listens.
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

    /// Builds the command of the program, with the arguments that `c/partner.c` documents.
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

/// Returns the path of the C program, which is compiled only once.
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

/// Builds the command of the Java peer in `java/src/test`, whose arguments differ.
fn java(role: &str, place: &Path, count: u64, options: &[&str]) -> Command {
    let (role, count) = match (role, count) {
        ("send", 1..) => ("produce", count.to_string()),
        ("send", 0) => ("produce", "-1".to_owned()),
        _ => ("consume", "-1".to_owned()),
    };
    let meets = if options.contains(&"listen") { "host" } else { "connect" };
    // Leave out the capacity, because the Java peer chooses the capacity of its ring itself.
    let words = options.iter().filter(|word| **word != "listen" && !word.starts_with("capacity="));
    // Start the JVM for a short run. crates/channel tests the JVM's optimising compiler.
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
    /// Waits until the program has opened its channel.
    pub fn opened(&mut self) {
        self.hear("open");
    }

    fn hear(&mut self, due: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), due);
    }

    /// Waits until the program has exited with 0, and returns its last line.
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

/// The last line that a program prints, parsed.
#[derive(Debug)]
pub struct Told {
    end: String,
    messages: u64,
    /// CRC of all bytes; `None` from the Java program, which prints none.
    crc: Option<u32>,
}

impl Told {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (end, messages, crc, partial) = match words[..] {
            [_, end, messages, crc, partial] => (end, messages, crc, partial),
            // Format of the Java program.
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

    /// Checks the way in which the exchange ended, and the number of messages.
    pub fn assert(&self, end: &str, messages: u64) {
        assert_eq!((&self.end[..], self.messages), (end, messages));
        if let Some(crc) = self.crc {
            assert_eq!(crc, crc_of(messages), "{self:?}");
        }
    }

    /// Checks that the program reported the death of its peer. Also checks the CRC of a receiver. A
    /// sender's CRC is of all sent messages, but its number only counts the released ones.
    pub fn assert_died(&self, role: &str) {
        assert_eq!(self.end, "died", "{self:?}");
        if role == "receive" {
            self.assert("died", self.messages);
        }
    }
}

/// Returns the CRC-32C of the first `messages` messages, in order.
pub fn crc_of(messages: u64) -> u32 {
    let mut bytes = Vec::new();
    (0..messages).fold(0, |crc, seq| {
        message(seq, &mut bytes);
        thalweg_kernels::crc32c(&bytes, crc)
    })
}
