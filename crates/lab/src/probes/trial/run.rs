//! One run of the program under one setting, with the server under it where there is one.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::{
    Errno,
    process::{self, Ended},
};

use super::{
    arms::Setting,
    server::{Server, Up},
    stage::{Stage, last_words},
    started,
};
use crate::measure::sample::Sample;

/// How long a process that was asked to end may take before it is made to.
const GRACE: Duration = Duration::from_secs(1);

/// What is run again and again.
pub struct Runner<'t> {
    /// The measured command.
    pub command: &'t [OsString],
    /// What serves it.
    pub server: Option<&'t Server>,
    /// Where things lie.
    pub stage: &'t Stage,
    /// How long one run may take.
    pub limit: Option<Duration>,
    /// Asked whenever a signal came.
    pub stop: &'t dyn Fn() -> Result<(), Cancelled>,
    /// Whether what the program prints is wanted.
    pub listens: bool,
}

/// What one run gave.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Time of the command; processor time and the rest of the server, where there is one.
    pub sample: Sample,
    /// The most memory, in bytes.
    pub max_resident: u64,
    /// Up to here the kernel shows ours instead.
    pub hidden_below: u64,
    /// Standard output, if it was listened to.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Why a run gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Somebody asked to stop.
    Cancelled,
    /// In words.
    Because(String),
}

impl From<Cancelled> for Failed {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<String> for Failed {
    fn from(words: String) -> Self {
        Self::Because(words)
    }
}

impl Runner<'_> {
    /// Runs once; counted calls go into the stage's file of counts.
    pub fn once(&self, setting: &Setting, counted: bool) -> Result<Ran, Failed> {
        let counts = if counted { Some(self.stage.counts()?) } else { None };
        let hidden_below = process::own_max_resident().unwrap_or(0);
        let put =
            |command: &mut Command| setting.put(command, self.stage.object(), counts.as_deref());
        let Some(server) = self.server else {
            let (wall, ended) = self.client(&put)?;
            return Ok(self.ran(wall, &ended, hidden_below));
        };
        let up = Up::start(server, self, &put)?;
        // Only the server is under the setting: the client is the measure.
        let measured = self.client(&|_| {});
        let ended = up.stop(self)?;
        let (wall, _) = measured?;
        Ok(self.ran(wall, &ended, hidden_below))
    }

    fn ran(&self, wall: Duration, ended: &Ended, hidden_below: u64) -> Ran {
        let used = ended.used;
        Ran {
            sample: Sample {
                wall,
                user: used.user,
                sys: used.sys,
                minor_faults: used.minor_faults,
                major_faults: used.major_faults,
                voluntary_switches: used.voluntary_switches,
                involuntary_switches: used.involuntary_switches,
                ..Sample::default()
            },
            max_resident: ended.max_resident,
            hidden_below,
            out: if self.listens { self.stage.heard("out") } else { String::new() },
            err: self.stage.heard("err"),
        }
    }

    /// Runs the measured command to its end, which must be a good one.
    fn client(&self, put: &dyn Fn(&mut Command)) -> Result<(Duration, Ended), Failed> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stderr(self.stage.ear("err")?);
        if self.listens {
            command.stdout(self.stage.ear("out")?);
        } else {
            command.stdout(Stdio::null());
        }
        put(&mut command);
        let name = command.get_program().display().to_string();
        let began = Instant::now();
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let ended = wait(child, self.limit, self.stop).map_err(|failed| match failed {
            Failed::Because(why) => Failed::Because(format!("{name}: {why}")),
            Failed::Cancelled => Failed::Cancelled,
        })?;
        let wall = began.elapsed();
        if ended.status.success() {
            return Ok((wall, ended));
        }
        // An interrupt from the keyboard ends the program too: that is no failure of it.
        (self.stop)()?;
        let said = match last_words(&self.stage.heard("err")) {
            words if words.is_empty() => "it said nothing on standard error".to_owned(),
            words => words,
        };
        Err(Failed::Because(format!("{name}: {}: {said}", ended.status)))
    }
}

/// Waits for the end of a child; one that is over its limit, or in the way of a stop, is ended.
pub fn wait(
    mut child: Child,
    limit: Option<Duration>,
    stop: &dyn Fn() -> Result<(), Cancelled>,
) -> Result<Ended, Failed> {
    let process = watch(&mut child)?;
    let began = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        match process::ended_within(&process, left) {
            Ok(true) => return reaped(&child),
            Ok(false) => {
                end(&child, &process)?;
                let seconds = limit.unwrap_or_default().as_secs_f64();
                return Err(format!("still running after {seconds} s, and ended").into());
            }
            Err(Errno::INTR) if stop().is_ok() => {}
            Err(Errno::INTR) => {
                end(&child, &process)?;
                return Err(Failed::Cancelled);
            }
            Err(errno) => {
                end(&child, &process)?;
                return Err(format!("poll: {errno}").into());
            }
        }
    }
}

/// A name for a child that stays its own; without one it cannot be waited for, and is ended.
pub fn watch(child: &mut Child) -> Result<OwnedFd, String> {
    process::watch(child).map_err(|errno| {
        let _ = child.kill();
        let _ = child.wait();
        format!("pidfd_open: {errno} (it needs Linux 5.3)")
    })
}

/// Asks a child to end, makes it after a while, and says how it ended. What it has started ends too:
/// else it would be in the way of the runs to come.
pub fn end(child: &Child, process: &OwnedFd) -> Result<Ended, String> {
    let rest = started::by(child);
    let ended = end_alone(child, process);
    started::end(rest, GRACE);
    ended
}

fn end_alone(child: &Child, process: &OwnedFd) -> Result<Ended, String> {
    use rustix::process::Signal;
    let began = Instant::now();
    for signal in [Signal::TERM, Signal::KILL] {
        // It may have ended by itself meanwhile.
        let _ = process::signal(process, signal);
        while began.elapsed() < GRACE || signal == Signal::KILL {
            let left = (signal == Signal::TERM).then(|| GRACE.saturating_sub(began.elapsed()));
            match process::ended_within(process, left) {
                Ok(true) => return reaped(child),
                Ok(false) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(format!("poll: {errno}")),
            }
        }
    }
    Err("it outlives SIGKILL".to_owned())
}

fn reaped<E: From<String>>(child: &Child) -> Result<Ended, E> {
    match process::reap(child) {
        Ok(Some(ended)) => Ok(ended),
        Ok(None) => Err("its end did not show".to_owned().into()),
        Err(errno) => Err(format!("wait4: {errno}").into()),
    }
}
