//! Numbers for people.

use std::time::Duration;

/// `1.4 GiB`.
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

/// `1.4 GiB (1503238553 bytes)`, or plainly `17 bytes`.
pub fn exact(count: u64) -> String {
    if count < 1024 {
        format!("{count} bytes")
    } else {
        format!("{} ({count} bytes)", bytes(count))
    }
}

/// `812.3 MiB/s`; nothing took no time.
pub fn rate(count: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-9);
    format!("{}/s", bytes((count as f64 / seconds) as u64))
}

/// `12 us`, `0.4 ms`, `12.0 s`, `1:02:03`.
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
    } else {
        format!("{} us", took.as_micros())
    }
}

/// `3 files`, `1 file`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_true() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(exact(17), "17 bytes");
        assert_eq!(duration(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(duration(Duration::from_micros(400)), "0.4 ms");
        assert_eq!(rate(2048, Duration::from_secs(2)), "1.0 KiB/s");
    }
}
