//! The conversation with a program: a line there, a line back, within a deadline. Whatever it does
//! (dies, hangs, chatters, never ends) comes back as a reason with its last words.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{SendFlags, send},
    process::{Pid, Signal, kill_process_group},
};
use std::{
    io::Read,
    os::unix::{net::UnixStream, process::CommandExt},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use thalweg_core::Unfit;

use super::reply::shown;

/// A line of the protocol is far shorter; what comes beyond is not kept.
const LONGEST_LINE: usize = 64 << 10;
/// Of what it writes to standard error.
const LAST_WORDS: usize = 2 << 10;
/// To end by itself; then it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A running program and the lines to it.
pub struct Talk {
    child: Child,
    name: String,
    patience: Duration,
    /// A socket and not a pipe: a write to a dead reader must answer EPIPE, also where SIGPIPE kills.
    orders: UnixStream,
    answers: ChildStdout,
    /// Until it closes it.
    complaints: Option<ChildStderr>,
    /// Read from `answers` and not yet taken.
    pending: Vec<u8>,
    said: Vec<u8>,
}

impl Talk {
    /// Starts it, in a process group of its own, so that its helpers can be ended with it.
    pub fn start(mut command: Command, name: String, patience: Duration) -> Result<Self, Unfit> {
        let failed = |e: std::io::Error| Unfit::because(format!("{name}: cannot be started: {e}"));
        let (orders, its_end) = UnixStream::pair().map_err(failed)?;
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(its_end)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        // The command holds a copy of the program's end: with it the end would never come.
        drop(command);
        let (Some(answers), Some(complaints)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Unfit::because(format!("{name}: it was started without its pipes")));
        };
        let (pending, said) = (Vec::new(), Vec::new());
        let complaints = Some(complaints);
        Ok(Self { child, name, patience, orders, answers, complaints, pending, said })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its process group, which is its own.
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line and waits for the answer. `unfit REASON` comes back as the reason.
    pub fn ask(&mut self, order: &str) -> Result<String, Unfit> {
        if self.has_spoken() {
            let early = String::from_utf8_lossy(&self.pending).into_owned();
            return Err(self.nonsense(order, &format!("it had spoken unasked: {}", shown(&early))));
        }
        let line = self.send(order).and_then(|()| self.line(order))?;
        match line.strip_prefix("unfit ") {
            Some(reason) => Err(Unfit::because(format!("{}: {reason}", self.name))),
            None => Ok(line),
        }
    }

    /// Whether it has said something that nobody asked for.
    fn has_spoken(&mut self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut it = [PollFd::new(&self.answers, PollFlags::IN)];
        if poll(&mut it, Some(&at_once)) == Ok(1) && it[0].revents().contains(PollFlags::IN) {
            let mut part = [0; 256];
            let got = self.answers.read(&mut part).unwrap_or(0);
            self.pending.extend_from_slice(&part[..got]);
        }
        !self.pending.is_empty()
    }

    fn send(&mut self, order: &str) -> Result<(), Unfit> {
        let line = format!("{order}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match send(&self.orders, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                // It is gone. What it said before it went may be the reason.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(e) => return Err(self.nonsense(order, &format!("it cannot be told: {e}"))),
            }
        }
        Ok(())
    }

    /// The next line, without its end.
    fn line(&mut self, order: &str) -> Result<String, Unfit> {
        let until = Instant::now() + self.patience;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.truncate(end);
                return match String::from_utf8(line) {
                    Ok(line) => Ok(line),
                    Err(_) => Err(self.nonsense(order, "its answer is not UTF-8")),
                };
            }
            if self.pending.len() > LONGEST_LINE {
                return Err(self.nonsense(order, "its answer does not end"));
            }
            if !self.listen(order, until)? {
                let how = self.ended();
                return Err(self.nonsense(order, &how));
            }
        }
    }

    /// Waits for some of its words; `false` where there will be none.
    fn listen(&mut self, order: &str, until: Instant) -> Result<bool, Unfit> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let words = format!("no answer in {:?}, it was ended", self.patience);
            self.end();
            return Err(self.nonsense(order, &words));
        }
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut both = vec![PollFd::new(&self.answers, PollFlags::IN)];
        both.extend(self.complaints.iter().map(|end| PollFd::new(end, PollFlags::IN)));
        match poll(&mut both, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(e) => return Err(self.nonsense(order, &format!("it cannot be heard: {e}"))),
        }
        let answered = !both[0].revents().is_empty();
        if both.get(1).is_some_and(|one| !one.revents().is_empty()) {
            self.hear_complaints();
        }
        if !answered {
            return Ok(true);
        }
        let mut part = [0; 4096];
        match self.answers.read(&mut part) {
            Ok(0) => Ok(false),
            Ok(got) => {
                self.pending.extend_from_slice(&part[..got]);
                Ok(true)
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(self.nonsense(order, &format!("it cannot be heard: {e}"))),
        }
    }

    /// Keeps the end of what it complains of; called when there is some.
    fn hear_complaints(&mut self) {
        let mut part = [0; 4096];
        let Some(complaints) = &mut self.complaints else { return };
        match complaints.read(&mut part) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            // Its end would make every poll return at once.
            Ok(0) | Err(_) => self.complaints = None,
            Ok(got) => {
                self.said.extend_from_slice(&part[..got]);
                let surplus = self.said.len().saturating_sub(LAST_WORDS);
                self.said.drain(..surplus);
            }
        }
    }

    /// How it ended, once it has closed its output.
    fn ended(&mut self) -> String {
        let status = self.wait();
        // A helper of its own may hold the other end: no waiting for more than there is.
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..LAST_WORDS / 16 {
            let Some(complaints) = &self.complaints else { break };
            let mut it = [PollFd::new(complaints, PollFlags::IN)];
            if poll(&mut it, Some(&at_once)) != Ok(1) || !it[0].revents().contains(PollFlags::IN) {
                break;
            }
            self.hear_complaints();
        }
        if let Some(status) = status {
            return format!("it ended ({status})");
        }
        self.end();
        "it closed its output and went on, it was ended".to_owned()
    }

    /// Waits, within the grace, for it to end.
    fn wait(&mut self) -> Option<std::process::ExitStatus> {
        let until = Instant::now() + GRACE;
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

    /// Kills it with its helpers, if it still runs.
    fn end(&mut self) {
        // Not once it was waited for: its number may be another's by then.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// The reason that names it, what it was asked, and its last words.
    pub fn nonsense(&self, order: &str, words: &str) -> Unfit {
        let said = String::from_utf8_lossy(&self.said);
        let said = said.trim();
        let tail = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        Unfit::because(format!("{}: asked to {order}: {words}{tail}", self.name))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = send(&self.orders, b"quit\n", SendFlags::NOSIGNAL);
        let _ = self.orders.shutdown(std::net::Shutdown::Write);
        if self.wait().is_none() {
            self.end();
        }
    }
}
