//! Parses and formats sizes, rates and times. All commands, studies and reports share one grammar. The parsers accept
//! what [`bytes`], [`rate`], [`duration`] and [`Size`] print, below 8 EiB.

use serde::{Deserialize, Deserializer, de::Error};
use std::{fmt, time::Duration};

/// Parses a number of bytes such as `4096`, `64K`, `64k`, `1.5G`, `10MB`, `64 KiB`, `1.5 GiB`.
///
/// `K`, `M`, `G`, `T`, `P`, `E` and `KiB` are powers of 1024. `KB` and `MB` are powers of 1000, as in GNU tools.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let bad = || format!("'{text}' is not a size (examples: 4096, 64K, 1.5G, 10MB, 64KiB)");
    let factor = factor(suffix).ok_or_else(bad)?;
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) if number.bytes().filter(|b| *b == b'.').count() == 1 => {
            let scaled = number.parse::<f64>().map_err(|_| bad())? * factor as f64;
            // 2^63 is exact in a double. A larger number would saturate in the conversion.
            (scaled < (1_u64 << 63) as f64).then_some(scaled as u64)
        }
        Err(_) if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() => None,
        Err(_) => return Err(bad()),
    };
    bytes.ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses a number of bytes like [`parse_bytes`], and rejects 0.
pub fn parse_some_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err(format!("'{text}' is zero")),
        bytes => Ok(bytes),
    }
}

/// Parses a rate in bytes per second such as `10M`, `10MB/s`, `1.5 GiB/s`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.trim().strip_suffix("/s").unwrap_or(text);
    parse_bytes(size).map_err(|error| {
        if error.ends_with("too large") {
            return error;
        }
        format!("'{text}' is not a rate (examples: 500K, 10MB/s, 1.5GiB/s)")
    })
}

fn factor(suffix: &str) -> Option<u64> {
    let suffix = suffix.trim_start();
    if matches!(suffix.to_ascii_lowercase().as_str(), "b" | "byte" | "bytes") {
        return Some(1);
    }
    let mut letters = suffix.chars();
    let Some(letter) = letters.next() else { return Some(1) };
    let power = "KMGTPE".find(letter.to_ascii_uppercase())? as u32 + 1;
    match letters.as_str() {
        "" | "iB" | "ib" | "i" => Some(1024_u64.pow(power)),
        "B" | "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Parses a time such as `30`, `30s`, `500ms`, `1.5m`, `2m 5s`, `1h30m`, `1:02:03`. A number without a unit is in
/// seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a time (examples: 30s, 500ms, 2m, 1h 30m, 1:30)");
    let text = text.trim();
    if text.contains(':') {
        return clock(text).ok_or_else(bad);
    }
    let (mut rest, mut whole, mut bare) = (text, Duration::ZERO, text.is_empty());
    while !rest.is_empty() && !bare {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at(letters);
        // A number without a unit must be the whole text, as `1h 30` is ambiguous.
        bare = unit.is_empty() && (rest.len() != text.len() || !next.is_empty());
        let number: f64 = number.parse().map_err(|_| bad())?;
        let seconds = number * unit_seconds(unit).ok_or_else(bad)?;
        let part = Duration::try_from_secs_f64(seconds).map_err(|_| bad())?;
        whole = whole.checked_add(part).ok_or_else(bad)?;
        rest = next.trim_start();
    }
    if bare { Err(bad()) } else { Ok(whole) }
}

/// Parses `1:30`, `1:02:03`.
fn clock(text: &str) -> Option<Duration> {
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [minutes, seconds] if seconds < 60 => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] if minutes < 60 && seconds < 60 => {
            hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?
        }
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "" | "s" | "sec" | "second" | "seconds" => 1.0,
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86400.0,
        _ => return None,
    })
}

/// Formats a number of bytes as `1.4 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a number of bytes as `1.4 GiB (1503238553 bytes)`, or as `17 bytes` below 1 KiB.
pub fn exact(count: u64) -> String {
    if count < 1024 {
        format!("{count} bytes")
    } else {
        format!("{} ({count} bytes)", bytes(count))
    }
}

/// Formats a size as `256K`, `1M` or `4097`, in the largest power of 1024 that divides it, or else in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, letter) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
            if self.0 >> shift > 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{letter}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    /// Deserializes a number, or a text such as `64K`. A number may be 0; a text may not mean 0.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size is a number or a text such as 64KiB")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => parse_some_bytes(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

/// Formats a rate as `812.3 MiB/s`. A duration of 0 counts as 1 ns.
pub fn rate(count: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-9);
    format!("{}/s", bytes((count as f64 / seconds) as u64))
}

/// Formats a time as `85 ns`, `12 us`, `0.4 ms`, `12.0 s`, `1:02:03`.
pub fn duration(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds >= 60 {
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        return match hours {
            0 => format!("{minutes}:{seconds:02}"),
            _ => format!("{hours}:{minutes:02}:{seconds:02}"),
        };
    }
    if took >= Duration::from_millis(100) {
        format!("{:.1} s", took.as_secs_f64())
    } else if took >= Duration::from_micros(100) {
        format!("{:.1} ms", took.as_secs_f64() * 1e3)
    } else if took >= Duration::from_micros(1) || took.is_zero() {
        format!("{} us", took.as_micros())
    } else {
        format!("{} ns", took.as_nanos())
    }
}

/// Formats a count with its noun: `3 files`, `1 file`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_to_move_are_exact_and_nonsense_is_refused() {
        assert_eq!(parse_some_bytes("64KiB"), Ok(65536));
        assert_eq!(parse_some_bytes("7MB"), Ok(7_000_000));
        assert_eq!(parse_some_bytes("16GiB"), Ok(16 << 30));
        assert_eq!((parse_some_bytes("1"), parse_some_bytes("3B")), (Ok(1), Ok(3)));
        for text in ["", "KiB", "-1", "0", "0K", "99999999999TiB"] {
            assert!(parse_some_bytes(text).is_err(), "{text}");
        }
        for size in [1, 4097, 1 << 20, 256 << 10, 3 << 30] {
            assert_eq!(parse_some_bytes(&Size(size).to_string()), Ok(size), "what knobs print");
        }
    }

    #[test]
    fn a_size_that_is_a_number_may_be_zero() {
        let read = |text: &str| serde_json::from_str::<Size>(text).map(|size| size.0);
        assert_eq!((read("0").unwrap(), read("\"7MB\"").unwrap()), (0, 7_000_000));
        for (bad, expected) in [("\"big\"", "not a size"), ("-1", "64KiB"), ("1.5", "64KiB")] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn numbers_are_short_and_true() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(exact(17), "17 bytes");
        assert_eq!(duration(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(duration(Duration::from_micros(400)), "0.4 ms");
        assert_eq!(duration(Duration::from_nanos(85)), "85 ns");
        assert_eq!(rate(2048, Duration::from_secs(2)), "1.0 KiB/s");
    }

    #[test]
    fn sizes_are_exact_or_plain() {
        assert_eq!(Size(256 << 10).to_string(), "256K");
        assert_eq!(Size((1 << 20) + 1).to_string(), "1048577");
        assert_eq!(Size(0).to_string(), "0");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("64K", 65536),
            ("100k", 102_400),
            ("1.5G", 3 << 29),
            ("10MB", 10_000_000),
            ("3KiB", 3072),
            ("64 KiB", 65536),
            ("12B", 12),
            ("17 bytes", 17),
            ("2Gi", 2 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_rate("10MB/s"), Ok(10_000_000));
        assert_eq!(parse_rate("1.0 KiB/s"), Ok(1024));
        assert_eq!(parse_rate("20M"), Ok(20 << 20));
    }

    #[test]
    fn nonsense_is_no_size_no_rate_and_no_time() {
        for text in
            ["", "-1", "K", "1.2.3", "1X", "NaN", "inf", "1e9", "1 K B", "99999999999999P", "50%"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
            assert!(parse_rate(&format!("{text}/s")).is_err(), "{text}/s");
        }
        assert!(parse_bytes("10MB/s").is_err());
        for text in
            ["", "s", "-1s", "1x", "1e9", "999999999999999999999h", "1.2.3", "1h 30", "1:99", "é"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("0", 0),
            ("90", 90_000),
            ("2m 5s", 125_000),
            ("1h30m", 5_400_000),
            ("1:02:03", 3_723_000),
            ("12.0 s", 12_000),
        ] {
            assert_eq!(
                parse_duration(text).map(|time| time.as_millis()),
                Ok(milliseconds),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_read(count: u64, microseconds in 0_u64..1 << 50) {
            prop_assert!(parse_bytes(&bytes(count >> 2)).is_ok());
            prop_assert_eq!(parse_bytes(&Size(count).to_string()), Ok(count));
            let printed = duration(Duration::from_micros(microseconds));
            prop_assert!(parse_duration(&printed).is_ok(), "{printed}");
        }
    }
}
