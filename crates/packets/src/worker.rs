//! Serves a study: the worker protocol (docs/formats.md) over stdin and stdout, with one kernel.

use std::io::{BufRead, Write, stdin, stdout};

use crate::bench::{Ports, Setting, Took};
use crate::copier::Choice;

/// Answers until `quit` or the end of stdin.
pub fn serve(kernel: &str, setting: &Setting) -> Result<(), String> {
    let choice = match Choice::named(kernel) {
        Ok(choice) => choice,
        Err(reason) => {
            println!("unfit {reason}");
            return Err(reason);
        }
    };
    let mut ports = Ports::new(setting);
    for line in stdin().lock().lines() {
        let line = line.map_err(|e| format!("reading stdin: {e}"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["hello"] => "thalweg-worker 1".to_owned(),
            ["warm"] => ports.run(choice, setting, false).map(|_| "ok".to_owned())?,
            ["check"] => match ports.run(choice, setting, true) {
                Ok(_) => "ok".to_owned(),
                Err(what) => format!("wrong {what}"),
            },
            // Guests never see the switch's buffers: two copies lie between source and sink.
            ["alias"] => "copied".to_owned(),
            ["run", times] => {
                let times = times.parse().map_err(|_| format!("run {times}: not a number"))?;
                run(&mut ports, choice, setting, times)?
            }
            ["quit"] => return Ok(()),
            _ => return Err(format!("{line:?} is not a request of the worker protocol")),
        };
        let mut out = stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| format!("stdout: {e}"))?;
    }
    Ok(())
}

fn run(ports: &mut Ports, choice: Choice, setting: &Setting, times: u32) -> Result<String, String> {
    let taken: Result<Vec<Took>, String> =
        (0..times).map(|_| ports.run(choice, setting, false)).collect();
    let taken = taken?;
    let sum = |of: &dyn Fn(&Took) -> u64| taken.iter().map(of).sum::<u64>();
    let answer = serde_json::json!({
        "wall_ns": sum(&|t| t.wall.as_nanos() as u64),
        "user_us": sum(&|t| t.usage.user.as_micros() as u64),
        "sys_us": sum(&|t| t.usage.sys.as_micros() as u64),
        "minor_faults": sum(&|t| t.usage.minor_faults),
        "major_faults": sum(&|t| t.usage.major_faults),
        "voluntary": sum(&|t| t.usage.voluntary_switches),
        "involuntary": sum(&|t| t.usage.involuntary_switches),
        "bytes": sum(&|t| t.bytes),
        "calls": 0,
    });
    Ok(answer.to_string())
}
