//! Parts of summaries: counts with separators between groups of three digits, time and rate.

use std::time::Duration;

use super::quantity;

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
