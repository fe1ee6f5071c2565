//! A server that runs while the command is measured.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_core::Cancelled;
use thalweg_sys::process::{self, Ended};

use thalweg_measure::{
    arms::command::{CommandRunner, end, last_words, wait, watch},
    schedule::SampleFailure,
};

/// Interval between checks whether the server is ready. Each check may start a process, so the interval is longer than
/// [`RETRY_PAUSE`](thalweg_core::cadence::RETRY_PAUSE).
const PAUSE: Duration = Duration::from_millis(20);
/// Timeout of a connection attempt. A local server accepts at once or not at all.
const CONNECT: Duration = Duration::from_secs(1);

/// A server and the condition for being ready.
#[derive(Clone, Debug)]
pub struct Server {
    /// The command, which must stay in the foreground.
    pub command: Vec<OsString>,
    pub ready: ServerReady,
    /// Timeout for becoming ready.
    pub within: Duration,
}

/// The condition for being ready. It must not hold before the server is started.
#[derive(Clone, Debug)]
pub enum ServerReady {
    /// This command exits successfully.
    Command(Vec<OsString>),
    /// This port of 127.0.0.1 accepts connections.
    Port(u16),
}

impl Server {
    fn name(&self) -> String {
        self.command.first().map(|name| name.display().to_string()).unwrap_or_default()
    }

    /// Returns `true` if the condition holds.
    fn is_ready(
        &self,
        left: Duration,
        stop: &dyn Fn() -> Result<(), Cancelled>,
    ) -> Result<bool, SampleFailure> {
        let words = match &self.ready {
            ServerReady::Port(port) => {
                let address = (Ipv4Addr::LOCALHOST, *port).into();
                return Ok(TcpStream::connect_timeout(&address, CONNECT).is_ok());
            }
            ServerReady::Command(words) => words,
        };
        let name = words.first().cloned().unwrap_or_default();
        let mut command = Command::new(&name);
        command.args(words.iter().skip(1));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", name.display()))?;
        match wait(child, Some(left), stop) {
            Ok(ended) => Ok(ended.status.success()),
            Err(SampleFailure::Cancelled) => Err(SampleFailure::Cancelled),
            // The command exceeded its time limit: not ready, and no time remains.
            Err(SampleFailure::Unfit(_)) => Ok(false),
        }
    }
}

/// A running server; dropping it ends the server.
pub struct Up<'s> {
    server: &'s Server,
    child: Child,
    process: OwnedFd,
    over: bool,
}

impl<'s> Up<'s> {
    /// Starts the server, after `put` has added a setting to its command, and waits until it is ready.
    pub fn start(
        server: &'s Server,
        runner: &CommandRunner<'_>,
        put: &dyn Fn(&mut Command),
    ) -> Result<Self, SampleFailure> {
        let name = server.name();
        if server.is_ready(server.within, runner.stop)? {
            let sign = match &server.ready {
                ServerReady::Port(port) => format!("a process accepts connections at port {port}"),
                ServerReady::Command(_) => "the command of --ready succeeds".to_owned(),
            };
            let why = format!("{sign} before {name} was started: another server would be measured");
            return Err(why.into());
        }
        let mut command = Command::new(&server.command[0]);
        command.args(&server.command[1..]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(runner.outputs.create("server")?);
        put(&mut command);
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let process = watch(&mut child)?;
        let mut up = Self { server, child, process, over: false };
        up.wait_until_ready(runner)?;
        Ok(up)
    }

    fn wait_until_ready(&mut self, runner: &CommandRunner<'_>) -> Result<(), SampleFailure> {
        let (name, began) = (self.server.name(), Instant::now());
        loop {
            (runner.stop)()?;
            if let Ok(Some(ended)) = process::reap(&self.child) {
                self.over = true;
                return Err(died(&name, &ended, runner, "before it was ready").into());
            }
            let left = self.server.within.saturating_sub(began.elapsed());
            if left.is_zero() {
                let seconds = self.server.within.as_secs_f64();
                let said = last_words(&runner.outputs.read("server"));
                return Err(format!("{name}: not ready after {seconds} s: {said}").into());
            }
            if self.server.is_ready(left, runner.stop)? {
                return Ok(());
            }
            thread::sleep(PAUSE.min(left));
        }
    }

    /// Stops the server and returns its resource usage. Returns an error if the server exited before.
    pub fn stop(mut self, runner: &CommandRunner<'_>) -> Result<Ended, SampleFailure> {
        self.over = true;
        match process::reap(&self.child) {
            Ok(Some(ended)) => {
                Err(died(&self.server.name(), &ended, runner, "while it was measured").into())
            }
            _ => Ok(end(&self.child, &self.process)?),
        }
    }
}

fn died(name: &str, ended: &Ended, runner: &CommandRunner<'_>, when: &str) -> String {
    let said = last_words(&runner.outputs.read("server"));
    format!("{name}: ended {when}: {}: {said}", ended.status)
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        if !self.over {
            // A failure cannot be reported to a caller here.
            let _ = end(&self.child, &self.process);
        }
    }
}
