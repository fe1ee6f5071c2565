//! Where sessions run: in processes of their own, or, for tests and the sentinel, in this one.

use std::{
    ffi::OsString,
    io::{self, BufRead},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, profile::Load};
use thalweg_sys::signal;

use super::{
    job::{Line, SessionJob, SessionLog, Task},
    session,
};
use crate::{
    helper::say,
    measure::process::{Heard, Manner, Process},
    probes::tune_copy::Stop,
};

pub trait Runner {
    /// Runs one, under its load. A session that fails says so in its log.
    fn run(&mut self, job: &SessionJob, stop: &Stop<'_>) -> SessionLog;
}

/// In this process; it makes no load.
#[derive(Debug, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn run(&mut self, job: &SessionJob, stop: &Stop<'_>) -> SessionLog {
        let mut log = SessionLog::default();
        session::run(job, stop, &mut |line| log.take(line));
        log
    }
}

/// In fresh processes of this command, which has to call [`serve`].
#[derive(Clone, Debug)]
pub struct Spawned {
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// A session that was told to stop, or is done, ends by itself; one that does not is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sessions may overrun: the least number of rounds is taken in any case.
const OVERRUN: u32 = 20;

impl Runner for Spawned {
    fn run(&mut self, job: &SessionJob, stop: &Stop<'_>) -> SessionLog {
        let mut log = SessionLog::default();
        let limit = job.budget.saturating_mul(OVERRUN).saturating_add(PATIENCE);
        let burners = match job.load {
            Load::Idle => Ok(Vec::new()),
            Load::Loaded => (0..busy_cores()).map(|_| self.start(&Task::Burn(limit))).collect(),
        };
        let session = burners.and_then(|burners: Vec<Process>| {
            let mut session = self.start(&Task::Measure(job.clone()))?;
            listen(&mut session, limit, stop, &mut log);
            drop(burners);
            Ok(())
        });
        if let Err(error) = session {
            log.failed = Some(format!("starting a session: {error}"));
        }
        log
    }
}

/// Every core but one, of those this process may use.
pub fn busy_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from) - 1
}

impl Spawned {
    fn start(&self, task: &Task) -> io::Result<Process> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments);
        let process = Process::start(command, Manner { grace: PATIENCE, ..Manner::HELPER })?;
        process.say(&serde_json::to_string(task)?)?;
        Ok(process)
    }
}

/// Takes a session's lines in until it ends, as it is made to when it is to stop or takes too long.
fn listen(process: &mut Process, limit: Duration, stop: &Stop<'_>, log: &mut SessionLog) {
    let mut deadline = Instant::now().checked_add(limit);
    let mut stopping = false;
    loop {
        match process.hear(Instant::now() + BETWEEN_LOOKS) {
            Ok(Heard::Line(line)) => match serde_json::from_str::<Line>(&line) {
                Ok(line) => log.take(line),
                Err(error) => log.failed = Some(format!("a session's answer: {error}")),
            },
            Ok(Heard::Silence) => {}
            Ok(Heard::End) => break,
            Err(error) => {
                log.failed = Some(format!("a session's answer: {error}"));
                break;
            }
        }
        if !stopping && stop().is_err() {
            stopping = true;
            process.close();
            deadline = Some(Instant::now() + PATIENCE);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            process.kill();
            log.failed = Some(format!("a session did not end within {limit:?}"));
            return;
        }
    }
    if !log.done && log.failed.is_none() && stop().is_ok() {
        let (how, words) = (process.ended(), process.last_words());
        log.failed = Some(format!("a session ended early: {how} {words}").trim_end().to_owned());
    }
}

/// The other side of [`Spawned`]: reads one task from standard input, does it, and answers on
/// standard output. Ends early when standard input ends or an interrupt comes, and cleans up.
pub fn serve() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line)?;
    let gone = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&gone);
    let watch = move || {
        let mut line = String::new();
        while io::stdin().lock().read_line(&mut line).is_ok_and(|got| got > 0) {
            line.clear();
        }
        watched.store(true, Ordering::Relaxed);
    };
    let refused = |e| io::Error::other(format!("no thread to watch standard input with: {e}"));
    thread::Builder::new().spawn(watch).map_err(refused)?;
    let stop = || {
        let ended = gone.load(Ordering::Relaxed) || signal::interrupted();
        if ended { Err(Cancelled) } else { Ok(()) }
    };
    match task {
        Task::Measure(job) => {
            let mut answered = Ok(());
            session::run(&job, &stop, &mut |line| {
                if answered.is_ok() {
                    answered = serde_json::to_string(&line)
                        .map_err(io::Error::from)
                        .and_then(|line| say(&line).map_err(io::Error::other));
                }
            });
            answered
        }
        Task::Burn(most) => {
            burn(most, &stop);
            Ok(())
        }
    }
}

/// Takes a whole processor, in user mode.
fn burn(most: Duration, stop: &Stop<'_>) {
    let began = Instant::now();
    let mut word = 1_u64;
    while began.elapsed() < most && stop().is_ok() {
        for _ in 0..1_000_000 {
            word = std::hint::black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
    }
}
