//! One session seen from outside: the process, its job, its answers. It is gone when this returns.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;

use super::{
    result::Place,
    wire::{Event, SessionJob, SessionLog},
};

/// How often somebody is asked whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// No sample takes so long; what is silent so long hangs.
const SILENCE: Duration = Duration::from_secs(1800);
/// What is kept of its last words.
const LAST_WORDS: usize = 4096;

/// Why a session has no log.
#[derive(Debug)]
pub enum Failed {
    /// Somebody asked to stop.
    Cancelled,
    /// Wrong bytes.
    Wrong {
        /// The arm.
        arm: String,
        /// Where.
        place: Place,
        /// What was seen.
        reason: String,
    },
    /// The session itself could not go on.
    Broken(String),
}

impl From<Cancelled> for Failed {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Runs a session to its end, handing on what it tells meanwhile.
pub fn run(
    job: &SessionJob,
    stop: &dyn Fn() -> Result<(), Cancelled>,
    on_event: &mut dyn FnMut(&Event),
) -> Result<SessionLog, Failed> {
    let mut process = Process::start(&job.program)?;
    let lines = process.send(job)?;
    let mut heard = Instant::now();
    loop {
        stop()?;
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if heard.elapsed() < SILENCE => continue,
            Err(RecvTimeoutError::Timeout) => {
                let minutes = SILENCE.as_secs() / 60;
                return Err(Failed::Broken(format!("silent for {minutes} minutes")));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(process.last_words(stop)),
        };
        heard = Instant::now();
        let unreadable = |e| Failed::Broken(format!("an answer that cannot be read: {e}"));
        match serde_json::from_str(&line).map_err(unreadable)? {
            Event::Done { log } => return Ok(log),
            Event::Wrong { arm, place, reason } => {
                return Err(Failed::Wrong { arm, place, reason });
            }
            event => on_event(&event),
        }
    }
}

/// Killed when dropped, which is harmless when it has ended.
struct Process {
    child: Child,
    words: Option<thread::JoinHandle<String>>,
}

impl Process {
    fn start(program: &Path) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["helper", "session"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let broken = |e| Failed::Broken(format!("{}: {e}", program.display()));
        let mut child = command.spawn().map_err(broken)?;
        let stderr = child.stderr.take();
        let mut process = Self { child, words: None };
        if let Some(stderr) = stderr {
            let listener = thread::Builder::new().spawn(move || last_of(stderr));
            process.words = Some(listener.map_err(no_thread)?);
        }
        Ok(process)
    }

    /// Hands it its job; answers its lines, as they come.
    fn send(&mut self, job: &SessionJob) -> Result<Receiver<String>, Failed> {
        let mut line = serde_json::to_string(job).map_err(|e| Failed::Broken(e.to_string()))?;
        line.push('\n');
        let (sender, lines) = channel();
        if let Some(stdout) = self.child.stdout.take() {
            let listener = thread::Builder::new().spawn(move || {
                let lines = BufReader::new(stdout).lines().map_while(Result::ok);
                for line in lines {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
            listener.map_err(no_thread)?;
        }
        // If it has ended already, its last words tell more than the broken pipe.
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.write_all(line.as_bytes());
        }
        Ok(lines)
    }

    /// It ended without an answer: interrupted together with us, or broken.
    fn last_words(&mut self, stop: &dyn Fn() -> Result<(), Cancelled>) -> Failed {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        let words = self.words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        match stop() {
            Err(Cancelled) => Failed::Cancelled,
            Ok(()) => Failed::Broken(format!("{status}: {}", words.trim())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` hands it over.
fn no_thread(error: std::io::Error) -> Failed {
    Failed::Broken(format!("no thread to listen to a session with: {error}"))
}

fn last_of(mut stderr: impl Read) -> String {
    let (mut kept, mut block) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = stderr.read(&mut block) {
        kept.extend_from_slice(&block[..count]);
        kept.drain(..kept.len().saturating_sub(LAST_WORDS));
    }
    String::from_utf8_lossy(&kept).into_owned()
}
