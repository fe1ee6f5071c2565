//! Runs the binary with a guard against hangs, and collects its output.

use serde_json::Value;
use std::{
    ffi::OsStr,
    io::Read,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time after which a command counts as hanging; not a requirement of speed.
pub const GUARD: Duration = Duration::from_secs(120);

/// Returns the command under test, without the settings of the user.
pub fn thalweg() -> Command {
    configured(Path::new(env!("CARGO_BIN_EXE_thalweg")))
}

/// Like [`thalweg`], but for a copy of the binary.
pub fn configured(binary: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(binary);
    quiet_environment(&mut command);
    command
}

/// Removes the user's settings from the environment of a command that will start the binary.
pub fn quiet_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THALWEG_") {
            command.env_remove(name);
        }
    }
    // This directory does not exist. Without the variable, thalweg would use the profile of the user.
    let nowhere = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-such-folder/profile.json");
    command.env("THALWEG_PROFILE", nowhere).env("LC_ALL", "C");
}

/// Returns a wrapper such as `prlimit --fsize=1 --` with the binary as its last argument.
pub fn wrapped(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_thalweg"));
    quiet_environment(&mut command);
    command
}

/// Runs a line of bash in a directory. `$T` is the command.
#[track_caller]
pub fn shell(folder: &Path, line: &str) -> Ran {
    let mut command = Command::new("bash");
    command.arg("-c").arg(line).current_dir(folder).stdin(Stdio::null());
    quiet_environment(&mut command);
    run(command.env("T", env!("CARGO_BIN_EXE_thalweg")))
}

/// The exit status and the output of a run.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    /// Returns the exit code. Panics after a death by signal.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("died of a signal: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        let status = self.status;
        assert_eq!(self.status.code(), Some(code), "{status}; {}", self.said());
        self.expect_no_panic()
    }

    #[track_caller]
    pub fn expect_no_panic(self) -> Self {
        assert!(!self.stderr.contains("panicked at"), "{}", self.stderr);
        self
    }

    /// Returns the JSON object on the last line of standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        json(&String::from_utf8_lossy(&self.stdout))
    }

    /// Parses standard output as one JSON object.
    #[track_caller]
    pub fn all_json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.said()))
    }

    /// Returns the JSON object on the last line of standard error, if standard output carries data.
    #[track_caller]
    pub fn json_on_stderr(&self) -> Value {
        json(&self.stderr)
    }

    pub fn said(&self) -> String {
        let stdout: String = String::from_utf8_lossy(&self.stdout).chars().take(2000).collect();
        format!("stderr: {}\nstdout: {stdout}", self.stderr)
    }

    #[track_caller]
    pub fn expect_said(&self, what: &str) {
        assert!(self.stderr.contains(what), "nothing about {what:?} in: {}", self.stderr);
    }
}

#[track_caller]
fn json(text: &str) -> Value {
    let line = text.lines().next_back().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

/// A started command, which is killed at the end of the test.
pub struct Running {
    child: Child,
    began: Instant,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    what: String,
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ran {
    Running::start(command).finish()
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let spawn = |command: &mut Command| Ok::<_, String>(command.spawn());
        Self::start_by(command, spawn).expect("nothing but spawning can fail")
    }

    /// Like `start`, but `spawn` starts the process. Returns the error of `spawn` if it fails before that.
    #[track_caller]
    pub fn start_by<E>(
        command: &mut Command,
        spawn: impl FnOnce(&mut Command) -> Result<std::io::Result<Child>, E>,
    ) -> Result<Self, E> {
        let what = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = spawn(command)?.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut running = Self::of(child);
        running.what = what;
        Ok(running)
    }

    /// Takes over a command that was started already.
    pub fn of(mut child: Child) -> Self {
        let what = format!("process {}", child.id());
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, began: Instant::now(), stdout, stderr, what }
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the command has a file open with a path that satisfies `is_it`. Returns `false` if it ends before.
    #[track_caller]
    pub fn wait_until_open(&mut self, is_it: impl Fn(&Path) -> bool) -> bool {
        let fds = format!("/proc/{}/fd", self.child.id());
        loop {
            let links = std::fs::read_dir(&fds).into_iter().flatten().flatten();
            let mut links = links.filter_map(|fd| std::fs::read_link(fd.path()).ok());
            if links.any(|link| is_it(&link)) {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            assert!(self.began.elapsed() < GUARD, "never opened: {}", self.what);
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // No other code has waited for the child, so its process ID cannot have been reused.
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends a signal to the process group of the command, which must lead it.
    pub fn signal_group(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process_group(pid, signal).unwrap();
    }

    /// Waits for the end, at most for [`GUARD`].
    #[track_caller]
    pub fn finish(self) -> Ran {
        self.finish_within(GUARD)
    }

    #[track_caller]
    pub fn finish_within(mut self, guard: Duration) -> Ran {
        while !self.has_ended() {
            let waited = self.began.elapsed();
            assert!(waited < guard, "hangs after {waited:?}: {}{}", self.what, self.where_it_is());
            thread::sleep(Duration::from_millis(if waited.as_millis() < 500 { 1 } else { 10 }));
        }
        let status = self.child.wait().unwrap();
        let text = |pipe: &mut Option<JoinHandle<Vec<u8>>>| {
            pipe.take().map(|reader| reader.join().unwrap()).unwrap_or_default()
        };
        let stdout = text(&mut self.stdout);
        let stderr = String::from_utf8_lossy(&text(&mut self.stderr)).into_owned();
        Ran { status, stdout, stderr }
    }

    /// Describes where each thread of the command waits, for the message about a hang.
    fn where_it_is(&self) -> String {
        let tasks = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let wchan = threads.map(|task| {
            let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            format!("\n  {} waits in {}", read("comm").trim(), read("wchan"))
        });
        wchan.collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text).unwrap_or_default()
    })
}

/// Returns `true` for a death by this signal, also as an exit status of a shell (128 + signal).
pub fn ended_by(status: ExitStatus, signal: i32) -> bool {
    status.signal() == Some(signal) || status.code() == Some(128 + signal)
}
