//! Finds the descendants of a command. The descendants would continue when the command is killed, because a shell does
//! not end its children.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::{
    fs,
    os::fd::OwnedFd,
    process::Child,
    time::{Duration, Instant},
};
use thalweg_sys::process;

/// Returns the descendants of a child, as far as the kernel lists them (`children` in proc(5)). A process is
/// missing if its parent has exited.
pub fn by(child: &Child) -> Vec<OwnedFd> {
    let (mut found, mut parents) = (Vec::new(), vec![child.id()]);
    while let Some(parent) = parents.pop() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let listed = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for number in listed.split_whitespace().filter_map(|word| word.parse::<u32>().ok()) {
                let Some(process) = watched(number, parent) else { continue };
                found.push(process);
                parents.push(number);
            }
        }
    }
    found
}

/// Opens a pidfd for the process with this id, if `parent` is its parent. Checks the parent after opening the pidfd,
/// because the id may have been reused before.
fn watched(number: u32, parent: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(number.cast_signed())?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The process name precedes this field and may contain anything, even parentheses.
    let field = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    field.parse::<u32>().is_ok_and(|number| number == parent).then_some(process)
}

/// Ends the processes that still run: SIGTERM, then SIGKILL after `grace`.
pub fn end(mut processes: Vec<OwnedFd>, grace: Duration) {
    let has_ended =
        |process: &OwnedFd, left| process::ended_within(process, Some(left)) == Ok(true);
    processes.retain(|process| !has_ended(process, Duration::ZERO));
    let began = Instant::now();
    for process in &processes {
        // The process may have exited in the meantime.
        let _ = process::signal(process, Signal::TERM);
    }
    for process in &processes {
        if !has_ended(process, grace.saturating_sub(began.elapsed())) {
            let _ = process::signal(process, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    #[test]
    fn grandchildren_are_found_and_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'sleep 600 & echo up; wait' & wait"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let started = by(&child);
        assert_eq!((said.as_str(), started.len()), ("up\n", 2));
        let ends: Vec<OwnedFd> = started.iter().map(|fd| fd.try_clone().unwrap()).collect();
        end(started, Duration::from_secs(60));
        for process in &ends {
            assert_eq!(process::ended_within(process, Some(Duration::from_secs(60))), Ok(true));
        }
        assert!(child.wait().is_ok());
        assert!(watched(child.id(), 1).is_none());
    }
}
