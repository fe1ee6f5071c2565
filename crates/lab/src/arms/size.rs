//! A size among the parameters of a work or a probe.

use serde::{Deserialize, Deserializer, de::Error};

use crate::study::size::bytes_of;

/// A number of bytes, or of things: `4096`, `0`, `"64KiB"`, `"7MB"` (10^6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size is a number or a text such as 64KiB")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => bytes_of(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_zero_and_texts_are_sizes() {
        #[derive(Deserialize)]
        struct With {
            size: Size,
        }
        let read = |text: &str| toml::from_str::<With>(text).map(|with| with.size.0);
        assert_eq!((read("size = 0"), read("size = '7MB'")), (Ok(0), Ok(7_000_000)));
        for (bad, expected) in [("'big'", "not a size"), ("-1", "64KiB"), ("1.5", "64KiB")] {
            let error = read(&format!("size = {bad}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
