//! A child process with a line protocol: start it, send lines, read lines with a deadline, end it. If the process dies,
//! hangs, floods its output or does not exit, the caller still gets a result. The end of the child's stderr is kept.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{SendFlags, send},
    process::{Pid, Signal, kill_process_group},
};
use std::{
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use thalweg_core::cadence::{CANCEL_CHECK, GRACE};

/// Bytes of standard error that are kept.
const LAST_WORDS: usize = 4 << 10;

/// How a process is started and ended.
#[derive(Clone, Copy, Debug)]
pub struct ProcessManner {
    /// Time for the process to exit after its input was closed; then it is killed.
    pub grace: Duration,
    /// `true` if the process leads its own process group, which is killed with it.
    pub leads_group: bool,
    /// Maximum bytes of a line. A longer line is an error.
    pub longest_line: usize,
}

impl ProcessManner {
    /// For thalweg's own helpers. They are killed as soon as they are not needed any longer, because they may be
    /// waiting for bytes that never come.
    pub const HELPER: Self =
        Self { grace: Duration::ZERO, leads_group: false, longest_line: usize::MAX };
}

/// Returns the command that starts a helper of this kind. `program` is `thalweg` or the helper binary of the tests.
pub fn helper(program: &Path, kind: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["helper", kind]);
    command
}

/// A running process with its input and output. Dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    manner: ProcessManner,
    /// A socket instead of a pipe: with `MSG_NOSIGNAL`, a write after the reader died returns EPIPE even if SIGPIPE
    /// would kill this process.
    orders: UnixStream,
    answers: ChildStdout,
    /// Standard error, until the process closes it.
    complaints: Option<ChildStderr>,
    /// Bytes read from `answers` but not yet returned; the first `searched` bytes contain no line end.
    pending: Vec<u8>,
    searched: usize,
    said: Vec<u8>,
}

/// The result of reading with a deadline.
#[derive(Debug, PartialEq, Eq)]
pub enum HeardLine {
    /// A line, without its line end.
    Line(String),
    Silence,
    /// The process closed its output.
    End,
}

impl Process {
    pub fn start(mut command: Command, manner: ProcessManner) -> io::Result<Self> {
        let (orders, its_end) = UnixStream::pair()?;
        command.stdin(Stdio::from(OwnedFd::from(its_end)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if manner.leads_group {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        // The command holds copies of the child's ends. While they are open, this process never reads end of file.
        drop(command);
        let (answers, complaints) = (child.stdout.take(), child.stderr.take());
        let answers = answers.ok_or(io::ErrorKind::BrokenPipe)?;
        let (pending, said) = (Vec::new(), Vec::new());
        Ok(Self { child, manner, orders, answers, complaints, pending, searched: 0, said })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line. If the process is gone, the next read reports it, because its earlier output may contain the
    /// reason.
    pub fn say(&self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match send(&self.orders, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Closes the standard input of the process.
    pub fn close(&self) {
        let _ = self.orders.shutdown(std::net::Shutdown::Write);
    }

    /// Waits for the next line until the deadline.
    pub fn hear(&mut self, until: Instant) -> Result<HeardLine, String> {
        loop {
            let unsearched = &self.pending[self.searched..];
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.truncate(end);
                self.searched = 0;
                let line = String::from_utf8(line).map_err(|_| "its answer is not UTF-8");
                return Ok(HeardLine::Line(line?));
            }
            self.searched = self.pending.len();
            if self.searched > self.manner.longest_line {
                return Err("its answer is too long: the line does not end".to_owned());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(HeardLine::Silence);
            }
            match self.listen(left) {
                Ok(true) => {}
                Ok(false) => return Ok(HeardLine::End),
                Err(error) => return Err(format!("its output cannot be read: {error}")),
            }
        }
    }

    /// Returns output that the process sent without a request; `None` if there was no output.
    pub fn unasked(&mut self) -> Option<String> {
        if readable(&self.answers) {
            let mut part = [0; 256];
            let got = self.answers.read(&mut part).unwrap_or(0);
            self.pending.extend_from_slice(&part[..got]);
        }
        (!self.pending.is_empty()).then(|| String::from_utf8_lossy(&self.pending).into_owned())
    }

    /// Waits for output. Returns `false` at end of file.
    fn listen(&mut self, left: Duration) -> io::Result<bool> {
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut both = vec![PollFd::new(&self.answers, PollFlags::IN)];
        both.extend(self.complaints.iter().map(|end| PollFd::new(end, PollFlags::IN)));
        match poll(&mut both, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
        let answered = !both[0].revents().is_empty();
        if both.get(1).is_some_and(|one| !one.revents().is_empty()) {
            self.hear_complaints();
        }
        if !answered {
            return Ok(true);
        }
        let mut part = [0; 16 << 10];
        match self.answers.read(&mut part) {
            Ok(0) => Ok(false),
            Ok(got) => {
                self.pending.extend_from_slice(&part[..got]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads available standard error and keeps the end of it.
    fn hear_complaints(&mut self) {
        let mut part = [0; 4096];
        let Some(complaints) = &mut self.complaints else { return };
        match complaints.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An end of file left in the poll set would make every poll return immediately.
            Ok(0) | Err(_) => self.complaints = None,
            Ok(got) => {
                self.said.extend_from_slice(&part[..got]);
                let surplus = self.said.len().saturating_sub(LAST_WORDS);
                self.said.drain(..surplus);
            }
        }
    }

    /// Waits for a process that has closed its output, and returns how it exited. Kills the process if it still runs
    /// after [`GRACE`].
    pub fn ended(&mut self) -> String {
        let status = self.wait(GRACE);
        self.hear_last_words();
        if let Some(status) = status {
            return format!("it ended ({status})");
        }
        self.kill();
        "it closed its output but did not end, so it was stopped".to_owned()
    }

    /// Reads only what is available: a descendant process may keep standard error open.
    fn hear_last_words(&mut self) {
        for _ in 0..LAST_WORDS / 16 {
            if !self.complaints.as_ref().is_some_and(readable) {
                break;
            }
            self.hear_complaints();
        }
    }

    /// Returns the end of the process's standard error.
    pub fn last_words(&mut self) -> String {
        self.hear_last_words();
        String::from_utf8_lossy(&self.said).trim().to_owned()
    }

    /// Waits up to this duration for the process to exit.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        let mut pause = Duration::from_micros(100);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => sleep(pause),
                _ => return None,
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Kills the process, and its group if it leads one, if it still runs.
    pub fn kill(&mut self) {
        // Once the process was waited for, its id may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let group = Pid::from_raw(self.child.id() as i32).filter(|_| self.manner.leads_group);
        let _ = match group {
            Some(group) => kill_process_group(group, Signal::KILL).map_err(io::Error::from),
            None => self.child.kill(),
        };
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.close();
        let until = Instant::now() + self.manner.grace;
        while self.wait(Duration::ZERO).is_none() {
            // Its remaining output is read; otherwise the process might block on a full pipe and never exit.
            match self.hear(until.min(Instant::now() + CANCEL_CHECK)) {
                Ok(HeardLine::Line(_)) => {}
                Ok(HeardLine::Silence) if Instant::now() < until => {}
                _ => {
                    self.wait(until.saturating_duration_since(Instant::now()));
                    break;
                }
            }
        }
        self.kill();
    }
}

/// Sends a line to the process that started this one.
pub fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    said.map_err(|e| format!("stdout: {e}"))
}

fn readable(end: &impl std::os::fd::AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut it = [PollFd::new(end, PollFlags::IN)];
    poll(&mut it, Some(&at_once)) == Ok(1) && it[0].revents().contains(PollFlags::IN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str, grace: Duration) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Process::start(command, ProcessManner { grace, ..ProcessManner::HELPER }).unwrap()
    }

    fn heard(process: &mut Process) -> HeardLine {
        process.hear(Instant::now() + Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn lines_go_both_ways_and_the_end_has_its_status_and_its_words() {
        let mut process =
            script("read a; printf 'got %s\\nand\\n' $a; echo why >&2; exit 3", GRACE);
        process.say("this").unwrap();
        assert_eq!(heard(&mut process), HeardLine::Line("got this".to_owned()));
        assert_eq!(heard(&mut process), HeardLine::Line("and".to_owned()));
        assert_eq!(heard(&mut process), HeardLine::End);
        assert!(process.ended().contains("exit status: 3"));
        assert_eq!(process.last_words(), "why");
        // The process has ended and cannot read this line. Writing it is not an error.
        process.say("more").unwrap();
    }

    #[test]
    fn a_line_longer_than_one_read_arrives_whole() {
        let mut process = script("head -c 300000 /dev/zero | tr '\\0' x; echo; echo y", GRACE);
        let HeardLine::Line(line) = heard(&mut process) else { panic!("no line") };
        assert_eq!(line.len(), 300_000);
        assert_eq!(heard(&mut process), HeardLine::Line("y".to_owned()));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_a_closed_input_ends_what_reads_it() {
        let mut process = script("read a; exit 5", Duration::from_secs(60));
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(process.hear(soon), Ok(HeardLine::Silence));
        process.close();
        assert_eq!(heard(&mut process), HeardLine::End);
        assert!(process.ended().contains("exit status: 5"));
    }
}
