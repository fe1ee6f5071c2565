//! Shared by the tests that need other processes: dice with a seed, and this binary run again.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Random numbers that a printed seed repeats.
pub struct Dice(u64);

impl Dice {
    /// `THALWEG_SEED`, else the clock.
    pub fn new() -> Self {
        let told = std::env::var("THALWEG_SEED").ok().and_then(|text| text.parse().ok());
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let seed = told.unwrap_or(clock.as_nanos() as u64);
        eprintln!("THALWEG_SEED={seed}");
        Self::of(seed)
    }

    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }
}

/// Message `seq`: a length and bytes that only it has.
pub fn message(seq: u64, into: &mut Vec<u8>) {
    let mut dice = Dice::of(seq + 1);
    let odd = [0, 1, 4095, 4097, 32, 33];
    let len = match dice.below(20) {
        at @ 0..6 => odd[at as usize],
        _ => dice.below(2000),
    };
    into.clear();
    into.extend((0..len).map(|at| (seq.wrapping_mul(31) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8));
}

/// Runs one test of this binary in a process of its own, told what to do by a variable.
pub fn again(test: &str, variable: &str, value: &str) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .stdout(Stdio::null())
        .spawn()
        .expect("this binary again")
}

/// What this process has open, by kind.
pub fn open_files() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("proc");
    let mut open: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().split(['[', '(']).next().unwrap_or("").to_owned())
        .collect();
    open.sort();
    open
}

/// A number from the environment, for longer campaigns.
pub fn from_env(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
