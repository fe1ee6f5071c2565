//! Spans of time as people write them: `30s`, `500ms`, `2m`, `1h`.

use std::{str::FromStr, time::Duration};

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a time (examples: 30s, 500ms, 2m, 1h)");
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let seconds = match unit {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        Duration::try_from_secs_f64(number * seconds).map(Self).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Span>().map(|span| span.0.as_millis());
        assert_eq!(read("30s"), Ok(30_000));
        assert_eq!(read("500ms"), Ok(500));
        assert_eq!(read("1.5m"), Ok(90_000));
        assert_eq!(read("0"), Ok(0));
        for text in ["", "s", "-1s", "1x", "1e9", "999999999999999999999h", "1.2.3"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
