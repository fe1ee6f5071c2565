//! Copies to another machine: serves a local file or directory to thalweg there.

use std::{path::Path, process::ExitStatus, sync::Arc, thread};
use thalweg_core::{
    cadence::{GRACE, RETRY_PAUSE},
    shown,
};
use thalweg_serve::{
    client::{FetchError, RemoteChild, RemoteCommand, in_words},
    server::{RunningServer, ServeOptions, Timeouts},
};
use thalweg_tree::install::FollowLinks;

use super::{further::FurtherConnections, hint};
use crate::{
    args::MethodArgs,
    exit::{CommandFailure, Exit},
    profile::{Moves, SavedProfile},
};

/// The connections of a copy to another machine.
pub struct PushConnections {
    /// The command of the first connection.
    pub command: RemoteCommand,
    pub further: Option<Arc<FurtherConnections>>,
}

/// Serves `source` to the command until the command ends. The exit status of the command becomes that of this process.
pub fn push(
    PushConnections { command, further }: &PushConnections,
    source: &Path,
    choice: &MethodArgs,
    limit: Option<u64>,
    follow: FollowLinks,
) -> Result<Exit, CommandFailure> {
    let failed = |error: String| CommandFailure::new(Exit::Failed, error);
    let host = command.name();
    let unstarted = |error: FetchError| failed(error.to_string()).hint(hint(host, None));
    let streams = further.as_ref().map_or(Ok(Vec::new()), |more| more.streams());
    let mut streams = streams.map_err(unstarted)?;
    let (stream, mut child) = command.start().map_err(unstarted)?;
    let compressed = stream.compressed().cloned();
    streams.insert(0, stream);
    let saved = SavedProfile::use_if_current(!choice.no_profile, Moves::Streams);
    let server = RunningServer::start(ServeOptions {
        streams,
        hidden: true,
        follow,
        hash: true,
        needs: choice.needs(),
        request: choice.request(),
        profile: saved.current,
        limit: limit.filter(|limit| *limit > 0),
        timeouts: Timeouts::NONE,
        ..ServeOptions::new(source)
    });
    let server = server.map_err(|error| failed(error.to_string()))?;
    let report = match further {
        None => server.join(),
        // The process of the first connection finishes the copy. Without this connection, the other ones end too.
        Some(further) => {
            while server.report().status.is_none() && child.status().is_none() {
                further.report_failed();
                thread::sleep(RETRY_PAUSE);
            }
            further.close();
            server.end_streams(GRACE)
        }
    };
    let status = child.wait(&|| Ok(())).map_err(|error| failed(error.to_string()))?;
    if let Some(noise) = report.noise.filter(|_| report.status.is_none()) {
        let why = "before its first request; login scripts must print nothing";
        return Err(failed(format!("{}: printed '{}' {why}", shown(host), shown(&noise))));
    }
    if let Some(failure) = compressed.and_then(|stream| stream.failure()) {
        return Err(failed(format!("{}: {failure}", shown(host))));
    }
    // The connecting command may exit with 0 although thalweg on the other machine failed or never started.
    let code =
        status.code().map(|code| if code == 0 { report.status.map(i32::from) } else { Some(code) });
    if code == Some(None) {
        let why = "the connection ended before the remote thalweg reported the end of the copy";
        return Err(failed(format!("{}: {why}", shown(host))).hint(hint(host, None)));
    }
    remote_exit(code.flatten(), status, &child, host)
}

/// Returns the exit status of this process after the command `host` ended with `status`. `code` is the exit status of
/// thalweg on the other machine, or that of the command if the command failed.
fn remote_exit(
    code: Option<i32>,
    status: ExitStatus,
    child: &RemoteChild,
    host: &str,
) -> Result<Exit, CommandFailure> {
    // The other side prints its own message, unless the command that connects failed.
    match code.filter(|code| *code == 0 || child.has_written()).and_then(Exit::of_code) {
        Some(Exit::Done) => Ok(Exit::Done),
        Some(exit) => Err(CommandFailure::new(exit, "")),
        None => {
            let why = format!("{}: {}", shown(host), in_words(status));
            let failure = CommandFailure::new(Exit::Failed, why);
            Err(failure.hint(hint(host, code)).of_program(code))
        }
    }
}
