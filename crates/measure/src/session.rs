//! A session: a fresh process that gets one job and reports line by line, in JSON, until it is done. The process is
//! fresh, so that memory layout, kernel caches and chance vary between sessions.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::BufRead,
    process::Command,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, cadence::CANCEL_CHECK};

use super::{
    process::{HeardLine, Process, ProcessManner, say},
    schedule::SampleFailure,
};

/// Timeouts for a kind of session.
#[derive(Clone, Copy, Debug)]
pub struct SessionPatience {
    /// A session without output for this long counts as hung.
    pub silence: Duration,
    /// Time for a cancelled session to exit; then it is killed.
    pub grace: Duration,
}

impl SessionPatience {
    /// For a session that can be killed at any time, because all its files are in a directory of this run. The timeout
    /// exceeds the duration of any round: operations of minutes, by several variants. A worker that hangs has a shorter
    /// time limit of its own.
    pub const DISPOSABLE: Self =
        Self { silence: Duration::from_secs(4 * 3600), grace: Duration::ZERO };
}

/// Runs a job in a new process. `take` receives each answer. When it returns `Some`, the session ends with that value.
/// The process no longer exists when this function returns.
pub fn run<A: DeserializeOwned, R>(
    command: Command,
    job: &impl Serialize,
    patience: SessionPatience,
    stop: &dyn Fn() -> Result<(), Cancelled>,
    take: &mut dyn FnMut(A) -> Option<R>,
) -> Result<R, SampleFailure> {
    let job = serde_json::to_string(job).map_err(|e| e.to_string())?;
    let program = command.get_program().display().to_string();
    let broken = |e| format!("{program}: {e}");
    let manner = ProcessManner { grace: patience.grace, ..ProcessManner::HELPER };
    let mut process = Process::start(command, manner).map_err(broken)?;
    process.say(&job).map_err(broken)?;
    let mut heard = Instant::now();
    loop {
        stop()?;
        match process.hear(Instant::now() + CANCEL_CHECK)? {
            HeardLine::Line(line) => {
                heard = Instant::now();
                let answer = serde_json::from_str(&line);
                let answer =
                    answer.map_err(|e| format!("invalid answer of the session process: {e}"))?;
                if let Some(done) = take(answer) {
                    return Ok(done);
                }
            }
            HeardLine::Silence if heard.elapsed() < patience.silence => {}
            HeardLine::Silence => {
                process.kill();
                let time = humantime::format_duration(patience.silence);
                return Err(format!("the session process printed nothing for {time}").into());
            }
            // Either an interrupt ended both processes, which `stop` reports, or the session failed.
            HeardLine::End => {
                let (how, words) = (process.ended(), process.last_words());
                stop()?;
                return Err(format!("{how}: {words}").into());
            }
        }
    }
}

/// Session side: reads the job, the first line of standard input.
pub fn job<J: DeserializeOwned>() -> Result<J, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| format!("stdin: {e}"))?;
    serde_json::from_str(&line).map_err(|e| format!("invalid job: {e}"))
}

/// Session side: sends one answer.
pub fn report(answer: &impl Serialize) -> Result<(), String> {
    say(&serde_json::to_string(answer).map_err(|e| e.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const PATIENCE: SessionPatience =
        SessionPatience { silence: Duration::from_secs(60), grace: Duration::from_secs(60) };

    fn run_in(
        script: &str,
        patience: SessionPatience,
        stop: &dyn Fn() -> Result<(), Cancelled>,
    ) -> Result<u64, SampleFailure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut sum = 0;
        run(command, &7, patience, stop, &mut |number: u64| {
            sum += number;
            (number == 0).then_some(sum)
        })
    }

    fn broken(script: &str, patience: SessionPatience) -> String {
        run_in(script, patience, &|| Ok(())).unwrap_err().unfit().unwrap().reason
    }

    #[test]
    fn a_session_answers_until_it_is_done_and_else_says_how_it_ended() {
        assert_eq!(run_in("read n; echo $n; echo 4; echo 0", PATIENCE, &|| Ok(())), Ok(11));
        let ended = broken("read n; echo 1; echo why >&2; exit 3", PATIENCE);
        assert!(ended.contains("exit status: 3") && ended.ends_with("why"), "{ended}");
        assert!(broken("read n; echo x", PATIENCE).contains("invalid answer"));
        let silence = Duration::from_millis(80);
        let silent = broken("read n; exec sleep 1000", SessionPatience { silence, ..PATIENCE });
        assert_eq!(silent, "the session process printed nothing for 80ms");
    }

    #[test]
    fn a_session_that_is_to_stop_may_still_clean_up() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join("left");
        std::fs::write(&left, "").unwrap();
        // The session prints more than a pipe holds.
        let script = format!(
            "read n; echo 1; cat; head -c 300000 /dev/zero | tr '\\0' x; echo; rm {}",
            left.display()
        );
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            if asked.get() > 2 { Err(Cancelled) } else { Ok(()) }
        };
        assert_eq!(run_in(&script, PATIENCE, &stop), Err(SampleFailure::Cancelled));
        assert!(!left.exists());
    }
}
