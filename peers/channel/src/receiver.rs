//! Process B: executes A's orders, and reports the resources that it used.

use crate::memory::{Memory, checksum, expect, fold};
use crate::words::{Job, Setting, Side};
use crate::{Meet, Outcome, Way, settle};
use std::io::{BufRead, Write, stdin, stdout};
use std::ops::Deref;
use thalweg_sys::usage::Usage;

pub fn main(setting: &Setting, meet: Meet) -> Outcome {
    settle(setting)?;
    let way = meet(setting, Side::Receiver)?;
    let mut receiver = Receiver { setting, way, sink: None, made: None, number: 0 };
    say("here")?;
    for line in stdin().lock().lines() {
        let line = line.map_err(|e| format!("stdin: {e}"))?;
        let answer = receiver.obey(&line)?;
        say(&answer)?;
    }
    Ok(())
}

fn say(line: &str) -> Outcome {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| format!("stdout: {e}"))
}

struct Receiver<'s> {
    setting: &'s Setting,
    way: Box<dyn Way>,
    sink: Option<Memory>,
    /// The last buffer, if the method allocates the buffers.
    made: Option<Box<dyn Deref<Target = [u8]>>>,
    number: u64,
}

impl Receiver<'_> {
    fn obey(&mut self, line: &str) -> Outcome<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["warm"] if self.setting.new => Ok("ok".to_owned()),
            ["warm"] => {
                self.sink = Some(Memory::resident(self.setting.bytes)?);
                Ok("ok".to_owned())
            }
            ["new"] => {
                (self.sink, self.made) = (None, None);
                if !self.setting.new {
                    self.sink = Some(Memory::fresh(self.setting.bytes)?);
                }
                Ok("ok".to_owned())
            }
            ["sum"] => {
                let made = self.made.as_ref().map(|made| &***made);
                Ok(format!("ok {}", made.or(self.sink.as_deref()).map_or(0, checksum)))
            }
            ["go" | "count", times] => {
                let times = times.parse().map_err(|_| format!("{line:?}: not a number"))?;
                self.go(times, words[0] == "count")
            }
            _ => Err(format!("{line:?} is no order")),
        }
    }

    /// A starts its clock when it reads "ready".
    fn go(&mut self, times: u32, counts: bool) -> Outcome<String> {
        say("ready")?;
        let before = Usage::now_process();
        let sum = self.receive_all(times, counts)?;
        let used = Usage::now_process().since(&before);
        Ok(format!(
            "done {} {} {} {} {} {} {sum}",
            used.user.as_micros(),
            used.sys.as_micros(),
            used.minor_faults,
            used.major_faults,
            used.voluntary_switches,
            used.involuntary_switches,
        ))
    }

    fn receive_all(&mut self, times: u32, counts: bool) -> Outcome<u64> {
        let mut sum = 0;
        for _ in 0..times {
            self.number += 1;
            if self.setting.new {
                let made = self.way.take_new()?;
                expect(&made, self.number)?;
                self.made = Some(made);
                continue;
            }
            let sink = self.sink.as_deref_mut().ok_or("it was not told to warm up")?;
            match self.setting.job {
                Job::Bulk => self.way.take(sink)?,
                Job::Stream | Job::PingPong => self.way.receive(sink)?,
            }
            expect(sink, self.number)?;
            if counts {
                sum = fold(sum, checksum(sink));
            }
            if self.setting.job == Job::PingPong {
                self.way.send(sink)?;
            }
        }
        if self.setting.job == Job::Stream {
            self.way.send(&[0; 8])?;
        }
        Ok(sum)
    }
}
