//! Sizes and rates as people write them: `4096`, `64K`, `1.5G`, `10MB`.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    /// `K`, `M`, `G`, `T`, `P` and `KiB` are powers of 1024; `KB`, `MB` are powers of 1000, as in
    /// GNU tools.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let bad = || format!("'{text}' is not a size (examples: 4096, 64K, 1.5G, 10MB)");
        let factor = factor(suffix).ok_or_else(bad)?;
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(factor),
            Err(_) if number.bytes().filter(|b| *b == b'.').count() == 1 => {
                let scaled = number.parse::<f64>().map_err(|_| bad())? * factor as f64;
                // 2^63 is exact in a double; the bound keeps the conversion from saturating.
                (scaled < (1_u64 << 63) as f64).then_some(scaled as u64)
            }
            Err(_) if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() => None,
            Err(_) => return Err(bad()),
        };
        bytes.map(Self).ok_or_else(|| format!("'{text}' is too large"))
    }
}

fn factor(suffix: &str) -> Option<u64> {
    let mut letters = suffix.trim().chars();
    let Some(letter) = letters.next() else { return Some(1) };
    let power = match letter.to_ascii_uppercase() {
        'B' if letters.as_str().is_empty() => return Some(1),
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        'P' => 5,
        _ => return None,
    };
    match letters.as_str() {
        "" | "iB" | "ib" => Some(1024_u64.pow(power)),
        "B" | "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Bytes>().map(|b| b.0);
        assert_eq!(read("0"), Ok(0));
        assert_eq!(read("64K"), Ok(65536));
        assert_eq!(read("1.5G"), Ok(3 << 29));
        assert_eq!(read("10MB"), Ok(10_000_000));
        assert_eq!(read("3KiB"), Ok(3072));
        assert_eq!(read("12B"), Ok(12));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "-1", "K", "1.2.3", "1X", "NaN", "inf", "1e9", "1 K B", "99999999999999P"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
