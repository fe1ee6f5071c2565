//! Background load while arms (compared variants) are sampled: helper processes that start before the arms are opened.
//! Each exits when its stdin is closed, so none outlives its session, however the session ends.

use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    hint::black_box,
    io::{Read, Seek, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};
use thalweg_core::{Unfit, cadence::GRACE};

use crate::{
    process::{HeardLine, Process, ProcessManner, helper, say},
    processors::{self, Processors},
};

/// Background load while an arm is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundLoad {
    /// No background load from thalweg.
    Idle,
    /// A busy thread on every core except one.
    Busy,
    /// One thread that is busy for a quarter of the time (used by study 001).
    Quarter,
    /// A process that keeps dirtying a file and writing it back.
    Writeback,
}

impl BackgroundLoad {
    /// Returns the name used in study files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Quarter => "quarter",
            Self::Writeback => "writeback",
        }
    }
}

/// Length of one cycle of the load that is busy for part of the time.
const CYCLE: Duration = Duration::from_millis(40);
/// The busy fraction of a cycle (used by study 001).
const DUTY: f64 = 0.25;
/// Bytes that the writeback load rewrites and syncs repeatedly.
const REWRITTEN: usize = 64 << 20;
/// Timeout for the first cycle of a load. A cycle is far shorter, unless a disk hangs.
const UNTIL_READY: Duration = Duration::from_secs(600);

/// The processes of one load; dropping it ends them.
#[derive(Debug, Default)]
pub struct Running(Vec<Process>);

impl Running {
    /// Starts a load and waits until it is running. The load may use all `processors`, independent of the pinning of
    /// the arms, and creates its files in `scratch`.
    pub fn start(
        load: BackgroundLoad,
        program: &Path,
        scratch: &Path,
        processors: &Processors,
    ) -> Result<Self, Unfit> {
        let mut running = Self::default();
        let (kind, count) = match load {
            BackgroundLoad::Idle => return Ok(running),
            BackgroundLoad::Busy => ("busy", processors.spare()),
            BackgroundLoad::Quarter => ("quarter", 1),
            BackgroundLoad::Writeback => ("writeback", 1),
        };
        if count == 0 {
            return Err(Unfit::because("background load needs a second core"));
        }
        for n in 0..count {
            let failed = |e: &dyn std::fmt::Display| {
                Unfit::because(format!("cannot start the background load '{kind}': {e}"))
            };
            let path = scratch.join(format!("load-{n}"));
            let mut command = helper(program, "load");
            command.args([kind, &processors.list()]).arg(path);
            let manner = ProcessManner { grace: GRACE, ..ProcessManner::HELPER };
            let mut process = Process::start(command, manner).map_err(|e| failed(&e))?;
            match process.hear(Instant::now() + UNTIL_READY).map_err(|e| failed(&e))? {
                HeardLine::Line(line) if line == READY => running.0.push(process),
                HeardLine::Silence => return Err(failed(&"its process did not start in time")),
                _ => {
                    return Err(failed(&format!(
                        "its process ended at once: {}",
                        process.last_words()
                    )));
                }
            }
        }
        Ok(running)
    }

    /// If the load ended early, returns the reason, because samples were then taken without load. The process may have
    /// been killed, or the disk may be full.
    pub fn failed(&mut self) -> Option<String> {
        let ended = self.0.iter_mut().find_map(|load| load.wait(Duration::ZERO));
        ended.map(|status| format!("the load ended during the measurement: {status}"))
    }
}

const READY: &str = "ready";

/// Entry point of `thalweg helper load KIND PROCESSORS PATH`.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let [kind, processors, path] = arguments else {
        return Err("arguments of load: expected KIND PROCESSORS PATH".to_owned());
    };
    processors::pin_to(&Processors::parse(processors)?)?;
    let work: fn(&Path) -> Result<(), String> = match kind.as_str() {
        "busy" => |_| be_busy(1.0),
        "quarter" => |_| be_busy(DUTY),
        "writeback" => rewrite,
        _ => return Err(format!("unknown load {kind:?}")),
    };
    let watch = thread::Builder::new().spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
    watch.map_err(|error| {
        format!("cannot start the thread that waits for the end of standard input: {error}")
    })?;
    work(Path::new(path))
}

/// Computes for this fraction of each cycle, until stdin is closed.
fn be_busy(part: f64) -> Result<(), String> {
    say(READY)?;
    loop {
        let began = Instant::now();
        while began.elapsed() < CYCLE.mul_f64(part) {
            (0..1000_u32).for_each(|n| {
                black_box(n);
            });
        }
        thread::sleep(CYCLE.mul_f64(1.0 - part));
    }
}

/// Rewrites and syncs a file repeatedly, until stdin is closed.
fn rewrite(path: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    let mut block = vec![1_u8; 1 << 20];
    let mut is_ready = false;
    loop {
        file.rewind().map_err(failed)?;
        for _ in 0..REWRITTEN / block.len() {
            file.write_all(&block).map_err(failed)?;
        }
        file.sync_data().map_err(failed)?;
        block[0] = block[0].wrapping_add(1);
        if !is_ready {
            say(READY)?;
            is_ready = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_testing::script;

    #[test]
    fn a_load_that_ends_under_way_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let program = scratch.path().join("load");
        let start = |text: &str| {
            script(&program, text);
            let here = Processors::of_this_thread().unwrap();
            Running::start(BackgroundLoad::Quarter, &program, scratch.path(), &here)
        };
        let mut lasting = start("echo ready; read line").unwrap();
        assert_eq!(lasting.failed(), None);
        drop(lasting);
        let mut short = start("echo ready; exit 7").unwrap();
        let mut why = None;
        for _ in 0..1000 {
            why = short.failed();
            if why.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(why.unwrap().contains("exit status: 7"));
        assert!(start("exit 7").unwrap_err().to_string().contains("at once"));
    }
}
