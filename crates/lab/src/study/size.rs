//! Sizes as study files write them: `4096`, `64KiB`, `7MB`, `16GiB`.

/// The bytes of a size: `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, `KB`, `MB`, `GB`, `TB` powers
/// of 1000; a bare number and `B` are bytes. Zero, fractions and anything else are refused.
pub fn bytes_of(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bad = || format!("{text:?} is not a size (examples: 4096, 64KiB, 7MB, 16GiB)");
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KB" => 1000,
        "MB" => 1000_u64.pow(2),
        "GB" => 1000_u64.pow(3),
        "TB" => 1000_u64.pow(4),
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    let bytes = number.checked_mul(factor).ok_or_else(|| format!("{text:?} is too large"))?;
    if bytes == 0 { Err(format!("{text:?} is nothing to move")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_and_nonsense_is_refused() {
        assert_eq!(bytes_of("64KiB"), Ok(65536));
        assert_eq!(bytes_of("7MB"), Ok(7_000_000));
        assert_eq!(bytes_of("16GiB"), Ok(16 << 30));
        assert_eq!((bytes_of("1"), bytes_of("3B")), (Ok(1), Ok(3)));
        for text in ["", "KiB", "1.5GiB", "-1", "64k", "0", "64 KiB", "99999999999TiB"] {
            assert!(bytes_of(text).is_err(), "{text}");
        }
    }
}
