//! Parts of summaries: counts with separators between groups of three digits, time and rate.

use std::time::Duration;

use super::{answer::SyncAnswer, quantity};

/// Smallest number of bytes for which a time and a rate carry information.
pub const RATED: u64 = 1 << 20;

/// Returns text such as ` in 0.6 s, 2.0 GiB/s`; empty below [`RATED`] bytes.
pub fn time_and_rate(bytes: u64, took: Duration) -> String {
    if bytes < RATED {
        return String::new();
    }
    format!(" in {}, {}", quantity::duration(took), quantity::rate(bytes, took))
}

/// Formats `4005` as `4,005`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `4,005 files`, `1 file`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Appends the counts that are not zero: `, 3 failed`.
pub fn add_counts(text: &mut String, counts: &[(u64, &str)]) {
    for (number, what) in counts.iter().filter(|(number, _)| *number > 0) {
        text.extend([", ", &grouped(*number), " ", what]);
    }
}

/// Returns the summary of a sync, such as `12 new, 3 changed, 1 deleted, 4,005 unchanged; 1.2 GiB in 3.0 s`.
/// `transferred`: the bytes and the time, `None` for a dry run.
pub fn sync_summary(
    sync: &SyncAnswer,
    excluded: u64,
    transferred: Option<(u64, Duration)>,
) -> String {
    let SyncAnswer { created, linked, changed, deleted, unchanged, failed, .. } = *sync;
    let mut text = format!("{} new", grouped(created - linked));
    add_counts(&mut text, &[(linked, "linked")]);
    for (number, what) in [(changed, "changed"), (deleted, "deleted"), (unchanged, "unchanged")] {
        text.extend([", ", &grouped(number), " ", what]);
    }
    add_counts(&mut text, &[(excluded, "excluded"), (failed, "failed")]);
    match transferred {
        Some((bytes, took)) => {
            format!("{text}; {} in {}", quantity::bytes(bytes), quantity::duration(took))
        }
        None => text + " (dry run)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_between_groups_of_three_digits() {
        let shown = [0, 12, 999, 1000, 4005, 123_456, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "12", "999", "1,000", "4,005", "123,456", "1,234,567"]);
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(4005, "file", "files"), "4,005 files");
    }
}
