//! The memory over which an arm (a compared variant) cycles: a cache level of this machine, or a
//! size.

use serde::Deserialize;
use thalweg_core::quantity::parse_some_bytes;
use thalweg_sys::host::{Cache, caches};

/// The memory over which an arm cycles, in the notation of studies: `hot`, `l1`, `l2`, `l3`,
/// `dram`, or a size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum WorkingSet {
    /// One source and one sink, used repeatedly.
    #[default]
    Hot,
    /// Half of the first-level data cache.
    L1,
    /// Half of the second level.
    L2,
    /// Half of the third level.
    L3,
    /// Twice the last level.
    Dram,
    /// A size in the notation of studies.
    Size(String),
}

impl From<String> for WorkingSet {
    fn from(word: String) -> Self {
        match word.as_str() {
            "hot" => Self::Hot,
            "l1" => Self::L1,
            "l2" => Self::L2,
            "l3" => Self::L3,
            "dram" => Self::Dram,
            _ => Self::Size(word),
        }
    }
}

impl WorkingSet {
    /// Returns an error if the text is neither a level nor a size.
    pub fn is_known(&self) -> Result<(), String> {
        match self {
            Self::Size(size) => size_of_residency(size).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Returns the bytes of all sources and sinks together; 0 for a single pair of any size.
    pub fn bytes(&self) -> Result<usize, String> {
        let bytes = |cache: &Cache| usize::try_from(cache.bytes).unwrap_or(usize::MAX);
        let unknown = |name: &str| {
            format!("the size of the {name} is not in /sys/devices/system/cpu: give a size")
        };
        let half = |level: u32| {
            let cache = caches().iter().find(|cache| cache.level == level);
            cache.map(|cache| bytes(cache) / 2).ok_or_else(|| unknown(&format!("L{level} cache")))
        };
        match self {
            Self::Hot => Ok(0),
            Self::L1 => half(1),
            Self::L2 => half(2),
            Self::L3 => half(3),
            Self::Dram => {
                let last = caches().iter().max_by_key(|cache| cache.level);
                Ok(bytes(last.ok_or_else(|| unknown("last cache"))?).saturating_mul(2))
            }
            Self::Size(size) => size_of_residency(size),
        }
    }
}

fn size_of_residency(size: &str) -> Result<usize, String> {
    let bytes = parse_some_bytes(size).map_err(|e| format!("residency: {e}"))?;
    usize::try_from(bytes).map_err(|_| format!("residency: {size} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_or_say_that_they_are_not() {
        assert_eq!(WorkingSet::from("hot".to_owned()).bytes(), Ok(0));
        assert_eq!(WorkingSet::from("64KiB".to_owned()).bytes(), Ok(64 << 10));
        assert!(WorkingSet::from("l9".to_owned()).bytes().unwrap_err().contains("l9"));
        for level in [WorkingSet::L1, WorkingSet::L2, WorkingSet::L3, WorkingSet::Dram] {
            match level.bytes() {
                Ok(bytes) => assert!(bytes >= 1 << 10, "{level:?}: {bytes}"),
                Err(reason) => assert!(reason.contains("name a size"), "{reason}"),
            }
        }
    }
}
