//! The line protocol between helpers and the process that started them: one line per message, words separated by
//! spaces. Requests arrive on the helper's stdin, responses go to its stdout.

use std::io::{self, BufRead};
use thalweg_sys::{tally, usage::Usage};

pub use super::process::say;

/// Reads the next line from stdin, split into words; `None` at end of file.
pub fn hear() -> Result<Option<Vec<String>>, String> {
    let mut line = String::new();
    let got = io::stdin().lock().read_line(&mut line);
    match got.map_err(|e| format!("stdin: {e}"))? {
        0 => Ok(None),
        _ => Ok(Some(line.split_whitespace().map(str::to_owned).collect())),
    }
}

/// Parses the word at this position as a number.
pub fn number(words: &[String], at: usize) -> Result<u64, String> {
    let word = words.get(at).map_or("", String::as_str);
    word.parse().map_err(|_| format!("word {at} of {words:?} is not a number"))
}

/// Resource usage and system calls of this process since `open`.
pub struct Ledger {
    usage: Usage,
    calls: u64,
}

impl Ledger {
    pub fn open() -> Self {
        Self { usage: Usage::now_process(), calls: tally::calls() }
    }

    /// Returns the line that [`spent`] parses.
    pub fn close(self) -> String {
        let used = Usage::now_process().since(&self.usage);
        let calls = tally::calls() - self.calls;
        format!(
            "spent {} {} {} {} {} {} {calls}",
            used.user.as_micros(),
            used.sys.as_micros(),
            used.minor_faults,
            used.major_faults,
            used.voluntary_switches,
            used.involuntary_switches,
        )
    }
}

/// Parses the line of a [`Ledger`]: resource usage and number of system calls.
pub fn spent(line: &str) -> Option<(Usage, u64)> {
    let numbers = line.strip_prefix("spent ")?.split(' ').map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let [user, sys, minor_faults, major_faults, voluntary, involuntary, calls] = numbers[..] else {
        return None;
    };
    let usage = Usage {
        user: std::time::Duration::from_micros(user),
        sys: std::time::Duration::from_micros(sys),
        minor_faults,
        major_faults,
        // Not part of the line.
        blocks_read: 0,
        voluntary_switches: voluntary,
        involuntary_switches: involuntary,
    };
    Some((usage, calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_writes_can_be_read_and_nothing_else_can() {
        let ledger = Ledger::open();
        let (usage, calls) = spent(&ledger.close()).unwrap();
        assert!(usage.user.as_secs() < 3600);
        assert_eq!(calls, 0);
        for bad in ["", "spent", "spent 1 2 3", "spent a b c d e f g", "gave 1 2 3 4 5 6 7"] {
            assert!(spent(bad).is_none(), "{bad}");
        }
    }
}
