//! Sizes as study files write them: `4096`, `64KiB`, `7MB`, `16GiB`.

use thalweg_core::quantity::parse_bytes;

/// The bytes of a size to move: not zero.
pub fn bytes_of(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err(format!("'{text}' is nothing to move")),
        bytes => Ok(bytes),
    }
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
        // What knobs print.
        assert_eq!(bytes_of("1M"), Ok(1 << 20));
        for text in ["", "KiB", "-1", "0", "0K", "99999999999TiB"] {
            assert!(bytes_of(text).is_err(), "{text}");
        }
    }
}
