//! The command that connects to another machine, such as ssh, and thalweg on that machine.

use clap::Args;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};
use thalweg_serve::{
    client::{Channels, RemoteCommand},
    remote::RemoteName,
};

use crate::{
    exit::{CommandFailure, Exit},
    output::{
        change_log::ChangeLog,
        text::{complain, note, print_line, relay_answer},
    },
};

pub mod direction;
pub mod further;
mod install;
mod push;
mod unsupported;
use further::{FurtherConnections, random_key};
pub use push::{PushConnections, push};
pub(crate) use unsupported::unsupported;

const REMOTE: &str = "Other machines";

/// Options for names on other machines.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = REMOTE)]
pub struct RemoteArgs {
    /// Connect with this command instead of `ssh`
    ///
    /// `{}` in the command stands for the host. Without `{}`, the host is appended.
    #[arg(short = 'e', long, value_name = "COMMAND", env = "THALWEG_SSH", hide_env = true)]
    pub rsh: Option<OsString>,
    /// Run this program on the other machine [default: thalweg]
    #[arg(long, value_name = "PATH")]
    pub remote_program: Option<OsString>,
    /// Fail if the other machine has no thalweg, instead of copying this program to ~/.cache/thalweg there
    #[arg(long)]
    pub no_install: bool,
    /// Use at most this many connections [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub connections: Option<u32>,
    /// Compress the data of the connection, except data that does not shrink
    #[arg(short = 'z', long)]
    pub compress: bool,
}

/// Options of ssh for a connection that carries data: no terminal, no forwarding.
const SSH: [&str; 4] = ["ssh", "-Tx", "-oClearAllForwardings=yes", "-oPermitLocalCommand=no"];
/// Prefix of each line in which the other side reports a changed entry on standard error.
pub const CHANGE: &str = "= ";
/// Prefix of the line in which the other side prints the summary on standard error, for the log of this machine.
pub const SUMMARY: &str = "=> ";
/// Default name of the program on the other machine.
const PROGRAM: &str = "thalweg";

/// Determines whether changes and the summary from the other machine are printed, logged, or both.
#[derive(Clone, Debug)]
pub struct RemoteOutput {
    pub log: Option<Arc<ChangeLog>>,
    pub prints_changes: bool,
    pub prints_summary: bool,
}

impl RemoteOutput {
    /// Prints and logs a change or the summary. Returns `false` if the line is something else.
    fn take(&self, host: &str, line: &str) -> bool {
        let is_expected = self.prints_changes || self.log.is_some();
        let line = if let Some(change) = line.strip_prefix(CHANGE).filter(|_| is_expected) {
            if self.prints_changes {
                print_line(change);
            }
            change
        } else if let Some(summary) = line.strip_prefix(SUMMARY).filter(|_| self.log.is_some()) {
            if self.prints_summary {
                note(&format!("{host}: {summary}"));
            }
            summary
        } else {
            return false;
        };
        if let Some(log) = &self.log {
            log.line(line);
        }
        true
    }
}

/// Abilities that a copy needs of the server on the other machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderNeeds {
    /// `true` to send hashes.
    pub hash: bool,
    /// `true` to follow symbolic links.
    pub copy_links: bool,
}

impl RemoteArgs {
    /// Returns the command that runs thalweg with these words on the other machine. A remote shell may interpret the
    /// words, so they consist of characters that no shell interprets.
    pub fn command(
        &self,
        name: &RemoteName,
        words: &[String],
    ) -> Result<RemoteCommand, CommandFailure> {
        let prints_changes = words.iter().any(|word| word == "--itemize");
        let output = RemoteOutput { log: None, prints_changes, prints_summary: true };
        self.logged_command(name, words, output, None)
    }

    /// Returns the connections to a fetch on the other machine, which these words start.
    pub fn push_connections(
        &self,
        name: &RemoteName,
        mut words: Vec<String>,
        output: RemoteOutput,
    ) -> Result<PushConnections, CommandFailure> {
        let mut further = None;
        if let Some(number @ 2..) = self.connections {
            let key = random_key();
            let join = ["fetch", "--stdio", "--join", &key].map(str::to_owned);
            let command = self.command(name, &join)?;
            words.push(format!("--accept={key}"));
            further = Some(Arc::new(FurtherConnections::new(key, command, number as usize - 1)));
        }
        let command = self.logged_command(name, &words, output, further.clone())?;
        Ok(PushConnections { command, further })
    }

    /// Like [`Self::command`], with a choice of what happens to changes and the summary from the other machine.
    /// `further`: the connections that the other machine may request.
    fn logged_command(
        &self,
        name: &RemoteName,
        words: &[String],
        output: RemoteOutput,
        further: Option<Arc<FurtherConnections>>,
    ) -> Result<RemoteCommand, CommandFailure> {
        let mut command = self.connection(name)?;
        match &self.remote_program {
            None => command.push(PROGRAM.into()),
            Some(text) => command.extend(split(text, "--remote-program")?),
        }
        command.extend(words.iter().map(OsString::from));
        command.extend(self.compress.then(|| OsString::from("--compress")));
        let host = name.host.clone();
        let has_answer = words.iter().any(|word| word == "--json");
        let lines = move |line: &str| {
            if has_answer && line.starts_with('{') {
                relay_answer(line);
            } else if further.as_ref().is_some_and(|further| further.take(line)) {
            } else if !output.take(&host, line) {
                note(&format!("{host}: {line}"));
            }
        };
        let command = RemoteCommand::new(command, name.host.clone(), Arc::new(lines));
        Ok(command.compress(self.compress))
    }

    /// Runs a copy. If the other machine has no thalweg, copies this program there and runs the copy again.
    pub fn with_program(
        &self,
        name: &RemoteName,
        copy: impl Fn(&Self) -> Result<Exit, CommandFailure>,
    ) -> Result<Exit, CommandFailure> {
        match copy(self) {
            Err(failure)
                if failure.is_without_program
                    && !self.no_install
                    && self.remote_program.is_none() =>
            {
                let words = self.connection(name)?;
                match install::install(&name.host, &words) {
                    Ok(program) => {
                        copy(&Self { remote_program: Some(program.into()), ..self.clone() })
                    }
                    Err(reason) => {
                        complain(&reason.message);
                        Err(failure)
                    }
                }
            }
            ended => ended,
        }
    }

    /// Returns the words of the command that connects.
    fn connection(&self, name: &RemoteName) -> Result<Vec<OsString>, CommandFailure> {
        let host = OsStr::new(&name.host);
        let mut command = match &self.rsh {
            None => SSH.map(OsString::from).to_vec(),
            Some(text) => split(text, "-e")?,
        };
        let mut is_placed = false;
        for word in &mut command {
            let mut bytes = word.as_bytes();
            let mut placed = Vec::with_capacity(bytes.len());
            while let Some(at) = bytes.windows(2).position(|pair| pair == b"{}") {
                placed.extend_from_slice(&bytes[..at]);
                placed.extend_from_slice(host.as_bytes());
                bytes = &bytes[at + 2..];
                is_placed = true;
            }
            placed.extend_from_slice(bytes);
            *word = OsString::from_vec(placed);
        }
        if !is_placed {
            command.push(host.to_owned());
        }
        Ok(command)
    }

    /// Returns the connections to a server that serves `name` on the other machine.
    pub fn channels(
        &self,
        name: &RemoteName,
        needs: SenderNeeds,
    ) -> Result<Arc<Channels>, CommandFailure> {
        let follow = if needs.copy_links { "--follow=any" } else { "--follow=none" };
        let words = ["serve", "--stdio", "--hidden", follow, "--encoded"];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(needs.hash.then(|| "--hash".to_owned()));
        words.push(name.word());
        let most = self.connections.map_or(1, |number| number as usize);
        Ok(Channels::by_command(self.command(name, &words)?, most))
    }
}

/// Splits a command into words, as a shell does with quotes.
fn split(text: &OsStr, option: &str) -> Result<Vec<OsString>, CommandFailure> {
    let words = shlex::bytes::split(text.as_bytes()).filter(|words| !words.is_empty());
    let usage =
        || CommandFailure::new(Exit::Usage, format!("{option}: invalid quotes, or no command"));
    Ok(words.ok_or_else(usage)?.into_iter().map(OsString::from_vec).collect())
}

/// Returns the hint for a connection that failed before the server answered.
pub fn hint(host: &str, code: Option<i32>) -> String {
    match code {
        None => "check `ssh`, or the command of -e".to_owned(),
        Some(126 | 127) => {
            format!("install thalweg on {host}, or name the program there with --remote-program")
        }
        Some(2) => format!("the thalweg on {host} may be too old; install this version there"),
        Some(255) => format!("check the connection with `ssh {host}`"),
        Some(_) => String::new(),
    }
}
