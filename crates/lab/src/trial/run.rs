//! One run of the program with one setting, and with its server if it has one.

use std::{ffi::OsString, process::Command};

use super::{
    arms::TrialSetting,
    folder::TrialFolder,
    server::{Server, Up},
};
use thalweg_measure::{
    arms::command::{self, Ran},
    schedule::SampleFailure,
};

/// The program that is run repeatedly.
pub struct TrialRunner<'t> {
    pub command: &'t [OsString],
    pub server: Option<&'t Server>,
    pub folder: &'t TrialFolder,
    /// Runs commands with limits and redirected output.
    pub runs: command::CommandRunner<'t>,
}

impl TrialRunner<'_> {
    /// Runs once. If `counted`, calls are counted in the directory's file of counts. Wall time is that of the
    /// command. With a server, CPU time and the other figures are those of the server.
    pub fn once(&self, setting: &TrialSetting, counted: bool) -> Result<Ran, SampleFailure> {
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
        // Only the server runs with the setting; the client only measures.
        let measured = self.runs.once(&mut command);
        let ended = up.stop(&self.runs)?;
        let mut ran = measured?;
        ran.used_by(&ended);
        Ok(ran)
    }
}
