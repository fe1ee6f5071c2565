//! Process A: starts B, implements the worker protocol, sends, and measures the time.

use crate::memory::{Memory, checksum, expect, fill, fold, put};
use crate::words::{Job, Setting, Side};
use crate::{Meet, Outcome, Way, settle};
use serde_json::json;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_sys::usage::Usage;

/// Answers commands until `quit` or the end of standard input.
pub fn main(setting: Outcome<Setting>, meet: Meet) -> Outcome {
    let mut sender: Option<Sender> = None;
    for line in stdin().lock().lines() {
        let line = line.map_err(|e| format!("stdin: {e}"))?;
        if line == "quit" {
            break;
        }
        // Starts B at the first command, because the lab ignores errors that are printed earlier.
        let sender = match &mut sender {
            Some(sender) => sender,
            none => none.insert(Sender::start(setting.clone()?, meet)?),
        };
        let answer = sender.answer(&line)?;
        let mut out = stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| format!("stdout: {e}"))?;
    }
    Ok(())
}

struct Sender {
    setting: Setting,
    way: Box<dyn Way>,
    other: Other,
    source: Option<Memory>,
    /// Memory for the answer to a ping.
    back: Option<Memory>,
    number: u64,
    salt: u64,
}

/// Time and resources of some operations.
#[derive(Default)]
struct Cost {
    wall: Duration,
    used: [u64; 6],
}

impl Sender {
    fn start(setting: Setting, meet: Meet) -> Outcome<Self> {
        // B is started first, so that it inherits A's processor affinity from before A is pinned.
        let mut other = Other::start(setting.pair)?;
        settle(&setting)?;
        let way = meet(&setting, Side::Sender)?;
        other.hear("here")?;
        Ok(Self { setting, way, other, source: None, back: None, number: 0, salt: 0 })
    }

    fn answer(&mut self, line: &str) -> Outcome<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hello"] => {
                let faults = if self.setting.fresh { " faults" } else { "" };
                Ok(format!("thalweg-worker 1{faults}"))
            }
            ["warm"] => self.warm().map(|()| "ok".to_owned()),
            ["run", times] => self.run(times.parse().map_err(|_| format!("{line}: not a number"))?),
            ["check"] => Ok(match self.check()? {
                None => "ok".to_owned(),
                Some(wrong) => format!("wrong {wrong}"),
            }),
            ["alias"] if self.setting.job != Job::Bulk => Ok("none".to_owned()),
            ["alias"] => Ok(if self.check()?.is_none() { "copied" } else { "shared" }.to_owned()),
            ["memory"] => Ok((pss(std::process::id()) + pss(self.other.child.id())).to_string()),
            _ => Err(format!("no such command: {line}")),
        }
    }

    fn warm(&mut self) -> Outcome {
        needs(2 * self.setting.bytes as u64)?;
        if !self.setting.loan {
            let mut source = Memory::fresh(self.setting.bytes)?;
            fill(&mut source, 1);
            self.source = Some(source);
        }
        if self.setting.job == Job::PingPong {
            self.back = Some(Memory::resident(self.setting.bytes)?);
        }
        self.other.ask("warm")?;
        let times = if self.setting.job == Job::Bulk { 1 } else { 64 };
        self.run(times).map(|_| ())
    }

    fn run(&mut self, times: u32) -> Outcome<String> {
        let mut cost = Cost::default();
        // If each operation needs new memory, runs operations one at a time, and prepares the
        // memory before the clock starts.
        let apart = self.setting.fresh || self.setting.loan;
        let batch = if apart { 1 } else { times };
        for _ in 0..times / batch.max(1) {
            self.prepare()?;
            self.other.say(&format!("go {batch}"))?;
            self.other.hear("ready")?;
            let (used, begin) = (Usage::now_process(), Instant::now());
            self.send_all(batch)?;
            cost.wall += begin.elapsed();
            cost.add(&numbers(&Usage::now_process().since(&used)));
            cost.add(&self.other.numbers()?);
        }
        let [user, sys, minor, major, voluntary, involuntary] = cost.used;
        Ok(json!({
            "wall_ns": cost.wall.as_nanos() as u64,
            "user_us": user,
            "sys_us": sys,
            "minor_faults": minor,
            "major_faults": major,
            "voluntary": voluntary,
            "involuntary": involuntary,
            "bytes": self.setting.bytes as u64 * u64::from(times),
        })
        .to_string())
    }

    fn prepare(&mut self) -> Outcome {
        if self.setting.fresh {
            self.other.ask("new")?;
        }
        if self.setting.loan {
            self.salt += 1;
            fill(self.way.lent(self.setting.bytes)?, self.salt);
        }
        Ok(())
    }

    fn send_all(&mut self, times: u32) -> Outcome {
        for _ in 0..times {
            self.number += 1;
            if self.setting.loan {
                put(self.way.lent(self.setting.bytes)?, self.number);
                self.way.hand_lent()?;
                continue;
            }
            let source = self.source.as_deref_mut().ok_or("it was not told to warm up")?;
            put(source, self.number);
            match self.setting.job {
                Job::Bulk => self.way.hand(source)?,
                Job::Stream => self.way.send(source)?,
                Job::PingPong => {
                    let back = self.back.as_deref_mut().ok_or("it was not told to warm up")?;
                    self.way.send(source)?;
                    self.way.receive(back)?;
                    expect(back, self.number)?;
                }
            }
        }
        if self.setting.job == Job::Stream { self.way.receive(&mut [0; 8]) } else { Ok(()) }
    }

    /// Sends messages with different bytes, overwrites each after sending, and compares all bytes.
    /// Returns a description of the difference, if any.
    fn check(&mut self) -> Outcome<Option<&'static str>> {
        let bulk = self.setting.job == Job::Bulk;
        let times = if bulk { 1 } else { 16 };
        self.prepare()?;
        self.other.say(&format!("{} {times}", if bulk { "go" } else { "count" }))?;
        self.other.hear("ready")?;
        let (mut sent, mut wrong) = (0, None);
        for _ in 0..times {
            let sum = self.send_one_and_scribble()?;
            sent = if bulk { sum } else { fold(sent, sum) };
            if let Some(back) = self.back.as_deref_mut() {
                self.way.receive(back)?;
                if checksum(back) != sum {
                    wrong = Some("what came back is not what was sent");
                }
            }
        }
        if self.setting.job == Job::Stream {
            self.way.receive(&mut [0; 8])?;
        }
        let counted = self.other.numbers()?[6];
        let arrived = if bulk { self.other.ask("sum")? } else { counted };
        Ok(wrong.or((arrived != sent).then_some("what arrived is not what was sent")))
    }

    fn send_one_and_scribble(&mut self) -> Outcome<u64> {
        self.number += 1;
        self.salt += 1;
        let (salt, number, spoil) = (self.salt, self.number, self.setting.spoil);
        let make = |memory: &mut [u8]| {
            fill(memory, salt);
            put(memory, number);
            let sum = checksum(memory);
            if let Some(last) = memory.last_mut().filter(|_| spoil) {
                *last ^= 1;
            }
            sum
        };
        if self.setting.loan {
            let sum = make(self.way.lent(self.setting.bytes)?);
            self.way.hand_lent()?;
            // The next loan may be in the same memory. B must not see this change.
            self.way.lent(self.setting.bytes)?.fill(0);
            return Ok(sum);
        }
        let source = self.source.as_deref_mut().ok_or("it was not told to warm up")?;
        let sum = make(source);
        match self.setting.job {
            Job::Bulk => self.way.hand(source)?,
            Job::Stream | Job::PingPong => self.way.send(source)?,
        }
        source.fill(0);
        Ok(sum)
    }
}

impl Cost {
    fn add(&mut self, used: &[u64]) {
        self.used.iter_mut().zip(used).for_each(|(sum, more)| *sum += more);
    }
}

fn numbers(used: &Usage) -> [u64; 6] {
    [
        used.user.as_micros() as u64,
        used.sys.as_micros() as u64,
        used.minor_faults,
        used.major_faults,
        used.voluntary_switches,
        used.involuntary_switches,
    ]
}

/// A's handle of process B: the process, and the streams for orders and reports.
struct Other {
    child: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

impl Other {
    /// Starts this program again as B, with the same parameters.
    fn start(pair: u32) -> Outcome<Self> {
        let failed = |e: std::io::Error| format!("starting the receiver: {e}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(std::env::args().skip(1)).arg("side=receiver").arg(format!("pair={pair}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let orders = child.stdin.take();
        let reports = child.stdout.take().ok_or("the receiver has no output")?;
        Ok(Self { child, orders, reports: BufReader::new(reports) })
    }

    fn say(&mut self, order: &str) -> Outcome {
        let orders = self.orders.as_mut().ok_or("the receiver has no input")?;
        orders
            .write_all(format!("{order}\n").as_bytes())
            .map_err(|e| format!("the receiver is gone: {e}"))
    }

    /// Reads a line, which must begin with `what`. Returns the rest of the line.
    fn hear(&mut self, what: &str) -> Outcome<String> {
        let mut line = String::new();
        self.reports.read_line(&mut line).map_err(|e| format!("the receiver: {e}"))?;
        if line.is_empty() {
            return Err("the receiver ended".to_owned());
        }
        match line.trim_end().strip_prefix(what) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None => Err(format!("the receiver says {line:?}, not {what}")),
        }
    }

    /// Sends an order that B answers with `ok`. Returns the number after it, or 0.
    fn ask(&mut self, order: &str) -> Outcome<u64> {
        self.say(order)?;
        let rest = self.hear("ok")?;
        if rest.is_empty() {
            return Ok(0);
        }
        rest.parse().map_err(|_| format!("the receiver says ok {rest}, not a number"))
    }

    /// Returns the resources that B used, and the sum of the messages.
    fn numbers(&mut self) -> Outcome<[u64; 7]> {
        let rest = self.hear("done")?;
        let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
        let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| format!("the receiver says done {rest}"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // B ends when its standard input is closed.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// Returns the proportional set size of a process. A page that two processes share counts half.
fn pss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    kib(&text, "Pss:").unwrap_or(0) << 10
}

/// Fails if this memory is not available without evicting other memory.
fn needs(bytes: u64) -> Outcome {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match kib(&text, "MemAvailable:") {
        Some(kib) if kib < bytes >> 10 => Err(format!(
            "it needs {} MiB of memory, and {} MiB are available",
            bytes >> 20,
            kib >> 10
        )),
        _ => Ok(()),
    }
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
