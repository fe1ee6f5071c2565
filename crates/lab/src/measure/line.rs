//! What helpers and the processes that started them say to each other: one line each way, words apart by
//! spaces. A helper's stdin is what it is told, its stdout what it answers.

use std::io::{self, BufRead};
use thalweg_sys::{tally, usage::Usage};

pub(crate) use super::process::say;

/// The next line that was said to us, in words; `None` at the end of standard input.
pub(crate) fn hear() -> Result<Option<Vec<String>>, String> {
    let mut line = String::new();
    let got = io::stdin().lock().read_line(&mut line);
    match got.map_err(|e| format!("stdin: {e}"))? {
        0 => Ok(None),
        _ => Ok(Some(line.split_whitespace().map(str::to_owned).collect())),
    }
}

/// The word in this place as a number.
pub(crate) fn number(words: &[String], at: usize) -> Result<u64, String> {
    let word = words.get(at).map_or("", String::as_str);
    word.parse().map_err(|_| format!("word {at} of {words:?} is no number"))
}

/// What this process used and called between two looks.
pub(crate) struct Ledger {
    usage: Usage,
    calls: u64,
}

impl Ledger {
    pub fn open() -> Self {
        Self { usage: Usage::now_process(), calls: tally::calls() }
    }

    /// The line that [`spent`] reads.
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

/// Reads a [`Ledger`]'s line: what was used, and how many calls were made.
pub(crate) fn spent(line: &str) -> Option<(Usage, u64)> {
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
        // The line does not tell.
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
