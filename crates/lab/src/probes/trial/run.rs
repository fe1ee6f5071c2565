//! One run of the program under one setting, with the server under it where there is one.

use std::{ffi::OsString, process::Command};

use super::{
    arms::Setting,
    folder::TrialFolder,
    server::{Server, Up},
};
use crate::{
    arms::command::{self, Ran},
    measure::schedule::Failure,
};

/// What is run again and again.
pub struct TrialRunner<'t> {
    pub command: &'t [OsString],
    pub server: Option<&'t Server>,
    pub folder: &'t TrialFolder,
    /// How it is run.
    pub runs: command::CommandRunner<'t>,
}

impl TrialRunner<'_> {
    /// Runs once; counted calls go into the folder's file of counts. The time is that of the command,
    /// processor time and the rest are those of the server, where there is one.
    pub fn once(&self, setting: &Setting, counted: bool) -> Result<Ran, Failure> {
        let counts = if counted { Some(self.folder.counts()?) } else { None };
        let put =
            |command: &mut Command| setting.put(command, self.folder.object(), counts.as_deref());
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        let Some(server) = self.server else {
            put(&mut command);
            return self.runs.once(&mut command);
        };
        let up = Up::start(server, &self.runs, &put)?;
        // Only the server is under the setting: the client is the measure.
        let measured = self.runs.once(&mut command);
        let ended = up.stop(&self.runs)?;
        let mut ran = measured?;
        ran.used_by(&ended);
        Ok(ran)
    }
}
