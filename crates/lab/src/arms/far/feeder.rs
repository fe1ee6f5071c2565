//! The helper `feeder`: fills a pipe at a steady rate, like a slow disk. The command line is `feeder PATH RATE`. For
//! each request `give BYTES`, the helper answers `go` and starts to write. When all bytes are in the pipe, it reports
//! the cost.

use rustix::fs::{Mode, OFlags, open};
use std::{
    thread,
    time::{Duration, Instant},
};
use thalweg_measure::arms::content::ByteContent;
use thalweg_measure::arms::transfer::write_all;
use thalweg_measure::line::{Ledger, hear, number, say};

/// Bytes per write: the default capacity of a pipe, and half of Linux's default read-ahead.
const AT_ONCE: u64 = 64 << 10;

/// Runs until stdin is closed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let [path, rate] = arguments else {
        return Err(format!("arguments {arguments:?}: expected PATH RATE"));
    };
    let rate: u64 =
        rate.parse().ok().filter(|rate| *rate > 0).ok_or("RATE is not a positive number")?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let into = open(path.as_str(), flags, Mode::empty()).map_err(|e| format!("{path}: {e}"))?;
    let mut chunk = vec![0; AT_ONCE as usize];
    let mut given = 0;
    say("ready")?;
    while let Some(words) = hear()? {
        let bytes = number(&words, 1)?;
        say("go")?;
        let ledger = Ledger::open();
        let began = Instant::now();
        let mut put = 0;
        while put < bytes {
            let len = AT_ONCE.min(bytes - put);
            ByteContent::Pattern.fill(given + put, &mut chunk[..len as usize]);
            let due = Duration::from_secs_f64((put + len) as f64 / rate as f64);
            thread::sleep(due.saturating_sub(began.elapsed()));
            write_all(&into, &chunk[..len as usize])?;
            put += len;
        }
        given += bytes;
        say(&ledger.close())?;
    }
    Ok(())
}
