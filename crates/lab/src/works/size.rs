//! Sizes as study files write them.

use serde::{Deserialize, Deserializer, de::Error};

/// A number of bytes: `4096`, `"64KiB"`, `"7MB"` (10^6), `"16 GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub u64);

const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
        let size = number.parse::<u64>().ok().zip(factor).and_then(|(n, (_, f))| n.checked_mul(*f));
        size.map(Self).ok_or_else(|| format!("{text:?} is no size such as 64KiB, 7MB or 1GiB"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal_or_binary_and_nonsense_is_told() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!((size("7MB"), size("16 GiB")), (Ok(7_000_000), Ok(16 << 30)));
        assert_eq!((size("4096"), size("64KiB")), (Ok(4096), Ok(65_536)));
        for bad in ["", "KiB", "1.5GiB", "-1", "7 MBit", "99999999999GiB"] {
            assert!(size(bad).unwrap_err().contains("is no size"), "{bad}");
        }
    }
}
