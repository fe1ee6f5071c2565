//! Serves a study: the worker protocol (docs/reference/formats.md) over stdin and stdout, with one kernel. One operation is one packet.

use std::io::{BufRead, Write, stdin, stdout};
use std::thread::available_parallelism;

use crate::bench::{BenchSetting, Ports};
use crate::copier::CopierChoice;

/// Answers requests until `quit` or the end of stdin. If this machine cannot run the setting, the first answer reports the reason, and the
/// function returns it as an error.
pub fn serve(kernel: &str, setting: &BenchSetting) -> Result<(), String> {
    let mut served = Served::new(kernel, setting);
    for line in stdin().lock().lines() {
        let line = line.map_err(|e| format!("cannot read standard input: {e}"))?;
        if line == "quit" {
            break;
        }
        let answer = match &mut served {
            Ok(served) => served.answer(&line)?,
            Err(reason) => format!("unfit {reason}"),
        };
        let mut out = stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| format!("stdout: {e}"))?;
        if let Err(reason) = served {
            return Err(reason);
        }
    }
    Ok(())
}

struct Served {
    choice: CopierChoice,
    /// The setting with enough packets to use every buffer three times. Such a run warms up and checks all buffers.
    thrice: BenchSetting,
    ports: Ports,
}

impl Served {
    fn new(kernel: &str, setting: &BenchSetting) -> Result<Self, String> {
        let choice = CopierChoice::named(kernel)?;
        let processors = available_parallelism().map_or(1, usize::from);
        if usize::from(setting.cores) > processors {
            return Err(format!("cores={}: it may use {processors}", setting.cores));
        }
        let thrice = BenchSetting { packets: 3 * u64::from(setting.mbufs), ..*setting };
        Ok(Self { choice, thrice, ports: Ports::new(setting) })
    }

    fn answer(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["hello"] => "thalweg-worker 1".to_owned(),
            ["warm"] => {
                self.ports.run(self.choice, &self.thrice, false).map(|_| "ok".to_owned())?
            }
            ["check"] => match self.ports.run(self.choice, &self.thrice, true) {
                Ok(_) => "ok".to_owned(),
                Err(what) => format!("wrong {what}"),
            },
            // Guests never access the switch's buffers. Each packet is copied twice between source and sink.
            ["alias"] => "copied".to_owned(),
            ["memory"] => "0".to_owned(),
            ["run", times] => {
                let times: u32 = times.parse().map_err(|e| format!("run {times}: {e}"))?;
                self.run(times.into())?
            }
            _ => format!("unfit no such command: {line}"),
        })
    }

    fn run(&mut self, packets: u64) -> Result<String, String> {
        let took = self.ports.run(self.choice, &BenchSetting { packets, ..self.thrice }, false)?;
        let usage = took.usage;
        let answer = serde_json::json!({
            "wall_ns": took.wall.as_nanos() as u64,
            "user_us": usage.user.as_micros() as u64,
            "sys_us": usage.sys.as_micros() as u64,
            "minor_faults": usage.minor_faults,
            "major_faults": usage.major_faults,
            "voluntary": usage.voluntary_switches,
            "involuntary": usage.involuntary_switches,
            "bytes": took.bytes,
        });
        Ok(answer.to_string())
    }
}
