//! `thalweg serve`: serves a directory or a file over HTTP.

use rustix::thread::{Timespec, nanosleep};
use std::{io, os::fd::OwnedFd, path::Path, thread, time::Duration};
use thalweg_core::{
    cadence::{Deadline, GRACE, RETRY_PAUSE},
    shown,
};
use thalweg_measure::tune_machine::EndPair;
use thalweg_serve::server::{AccessLog, ListenAddress, RunningServer, ServeOptions, Timeouts};
use thalweg_sys::{handed, signal, user::User};

use super::{Subcommand, tune};
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::text::{complain, note, print},
    profile::{Moves, SavedProfile},
};

mod args;
mod choices;
mod explain;
mod reach;
pub mod stdio;
mod terminal;
use args::Listen;
pub use args::ServeArgs;
use terminal::Terminal;

/// Duration of the measurement before serving.
const TUNING: Duration = Duration::from_secs(3);

/// Duration of one sleep. A signal ends a sleep early. If the signal arrives just before the sleep begins, the server
/// notices it after the sleep.
const NAP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

impl Subcommand for ServeArgs {
    fn outlives_pipes(&self) -> bool {
        true
    }

    fn run(&self, color: bool) -> Result<Exit, CommandFailure> {
        if let Some(path) = &self.explain {
            return explain::run(self, path, color);
        }
        if self.stdio {
            return stdio::run(self);
        }
        if self.tune {
            self.measure()?;
        }
        // Must precede `count_hangups`. Until that call, SIGHUP ends the process, so the server cannot miss a hangup of
        // this terminal.
        let terminal = Terminal::now();
        let saved = SavedProfile::use_if_current(!self.choice.no_profile, Moves::Streams);
        // The workers block signals, so that this thread receives them.
        let _ = signal::catch_interrupts();
        let _ = signal::count_hangups();
        let handed = handed::sockets();
        let handed =
            handed.map_err(|e| CommandFailure::of_call("fcntl", "a socket of LISTEN_FDS", e))?;
        let is_unix = self.listen.is_empty() && !self.unix.is_empty();
        let choices = choices::words(&self.root, is_unix, &self.choice, saved.current.as_ref());
        let server = RunningServer::start(self.options(saved, handed)?);
        let server =
            server.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
        if self.check {
            note("options and addresses are valid");
            return Ok(Exit::Done);
        }
        Self::print_addresses(server.addresses())?;
        if let Some(choices) = choices {
            note(&choices);
        }
        self.wait(&server, &terminal);
        // In threads, because the reader of standard error may have stopped to read.
        let _ = thread::spawn(|| note("finishing responses; interrupt again to stop at once"));
        if !server.stop(self.grace, || signal::times() > 1) {
            let complaint = thread::spawn(|| complain("some responses were incomplete"));
            let given = Deadline::after(GRACE);
            while !complaint.is_finished() && !given.passed() {
                thread::sleep(RETRY_PAUSE);
            }
            return Err(CommandFailure::new(Exit::Failed, ""));
        }
        Ok(Exit::Done)
    }
}

impl ServeArgs {
    fn options(
        &self,
        saved: SavedProfile,
        handed: Vec<OwnedFd>,
    ) -> Result<ServeOptions, CommandFailure> {
        let format = self.log.format();
        let log = format.map(|format| AccessLog { format, out: Box::new(io::stderr()) });
        let tcp = self.listen.iter().map(|Listen(address)| ListenAddress::Tcp(*address));
        let unix = self.unix.iter().cloned().map(ListenAddress::Unix);
        let user = self.user.as_deref().map(user).transpose()?;
        Ok(ServeOptions {
            root: self.root.clone(),
            listen: tcp.chain(unix).collect(),
            handed,
            streams: Vec::new(),
            threads: self.threads.map(usize::from),
            follow: self.follow.into(),
            hidden: self.hidden,
            listing: !self.no_listing,
            precompressed: self.precompressed,
            hash: self.hash,
            user,
            memory: self.memory,
            metrics: self.metrics,
            needs: self.choice.needs(),
            request: self.choice.request(),
            profile: saved.current,
            limit: self.limit.filter(|limit| *limit > 0),
            limit_each: self.limit_each.filter(|limit| *limit > 0),
            timeouts: Timeouts {
                head: self.header_timeout,
                idle: self.idle_timeout,
                stalled: self.send_timeout,
                ..Timeouts::default()
            },
            max_connections: self.max_connections.map(usize::from),
            connections_per_address: self.connections_per_address,
            log,
        })
    }

    /// Waits for an interrupt, or until the terminal has hung up. Loads the profile again on any other SIGHUP.
    fn wait(&self, server: &RunningServer, terminal: &Terminal) {
        let mut hangups = 0;
        while !signal::interrupted() {
            if signal::hangups() > hangups {
                hangups = signal::hangups();
                if terminal.is_gone() {
                    return;
                }
                let saved = SavedProfile::use_if_current(!self.choice.no_profile, Moves::Streams);
                let is_found = saved.current.is_some();
                let found = if is_found { "reloaded".to_owned() } else { saved.describe() };
                note(&format!("profile: {found}"));
                server.choose_by(saved.current);
            }
            let _ = nanosleep(&NAP);
        }
    }

    /// Measures before serving. A failed measurement is reported and does not prevent serving.
    fn measure(&self) -> Result<(), CommandFailure> {
        interrupt::catch();
        let folder = if self.root.is_dir() { Some(&*self.root) } else { self.root.parent() };
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
        let at = folder.unwrap_or(Path::new(".")).display();
        let ends = format!("file:tcp@{at}").parse::<EndPair>();
        let measured = match ends {
            Ok(ends) => tune::briefly(ends, TUNING),
            Err(why) => Err(CommandFailure::new(Exit::Failed, why)),
        };
        match measured {
            Ok(what) => note(&what),
            Err(failure) if interrupt::check().is_err() => return Err(failure),
            Err(failure) => complain(&format!("--tune failed: {}", failure.message)),
        }
        Ok(())
    }

    /// Prints on standard error which machines can connect, then the addresses on standard output.
    fn print_addresses(addresses: &[ListenAddress]) -> Result<(), CommandFailure> {
        let tcp = || {
            addresses.iter().filter_map(|address| match address {
                ListenAddress::Tcp(address) => Some(address),
                ListenAddress::Unix(_) => None,
            })
        };
        if tcp().any(|address| !address.ip().is_loopback()) {
            complain("warning: every machine in your network can read these files, unencrypted");
        } else if let Some(address) = tcp().next() {
            let port = address.port();
            note(&format!("Only this machine can connect; use --listen :{port} for your network"));
        }
        for address in addresses {
            let places = match address {
                ListenAddress::Tcp(address) => {
                    reach::reachable(*address).iter().map(|at| format!("http://{at}/")).collect()
                }
                ListenAddress::Unix(path) => vec![format!("unix:{}", shown(path))],
            };
            for place in places {
                print(&format!("{place}\n"))?;
            }
        }
        Ok(())
    }
}

fn user(name: &str) -> Result<User, CommandFailure> {
    match User::find(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(CommandFailure::new(Exit::Usage, format!("--user {name}: no such user"))),
        Err(errno) => Err(CommandFailure::of_call("getpwnam", name, errno)),
    }
}
