//! How much memory an arm cycles over: a named level of this machine's caches, or a size.

use serde::Deserialize;
use std::fs;

use crate::study::size::bytes_of;

/// As a study writes it: `hot`, `l1`, `l2`, `dram`, or a size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Span {
    /// One source and one sink, again and again.
    #[default]
    Hot,
    /// Half of the first-level data cache.
    L1,
    /// Half of the second level.
    L2,
    /// Twice the last level.
    Dram,
    /// So much, as sizes are written in studies.
    Size(String),
}

impl From<String> for Span {
    fn from(word: String) -> Self {
        match word.as_str() {
            "hot" => Self::Hot,
            "l1" => Self::L1,
            "l2" => Self::L2,
            "dram" => Self::Dram,
            _ => Self::Size(word),
        }
    }
}

impl Span {
    /// Bytes of all sources and sinks together; 0 for one pair whatever its size.
    pub fn bytes(&self) -> Result<usize, String> {
        let level = |level: u32| caches().into_iter().find(|cache| cache.level == level);
        let unknown = |name: &str| {
            format!("the size of the {name} does not show in /sys/devices/system/cpu: name a size")
        };
        match self {
            Self::Hot => Ok(0),
            Self::L1 => Ok(level(1).ok_or_else(|| unknown("L1 cache"))?.bytes / 2),
            Self::L2 => Ok(level(2).ok_or_else(|| unknown("L2 cache"))?.bytes / 2),
            Self::Dram => {
                let last = caches().into_iter().max_by_key(|cache| cache.level);
                Ok(last.ok_or_else(|| unknown("last cache"))?.bytes.saturating_mul(2))
            }
            Self::Size(size) => {
                let bytes = bytes_of(size).map_err(|e| format!("residency: {e}"))?;
                usize::try_from(bytes).map_err(|_| format!("residency: {size} is too large"))
            }
        }
    }
}

/// Refuses what would drive others out of memory.
pub fn room_for(bytes: usize) -> Result<(), String> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    match kib {
        Some(kib) if kib < bytes >> 10 => Err(format!(
            "it needs {} MiB of memory, and {} MiB are available",
            bytes >> 20,
            kib >> 10
        )),
        _ => Ok(()),
    }
}

struct Cache {
    level: u32,
    bytes: usize,
}

/// The caches of the first processor that hold data (Documentation/ABI/testing/sysfs-devices-system-cpu).
fn caches() -> Vec<Cache> {
    let folder = fs::read_dir("/sys/devices/system/cpu/cpu0/cache");
    let entries = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    let read = |path: std::path::PathBuf| {
        let of = |name: &str| fs::read_to_string(path.join(name)).ok().map(|s| s.trim().to_owned());
        if of("type")? == "Instruction" {
            return None;
        }
        let kib = of("size")?.strip_suffix('K')?.parse::<usize>().ok()?;
        Some(Cache { level: of("level")?.parse().ok()?, bytes: kib << 10 })
    };
    entries.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_or_say_that_they_are_not() {
        assert_eq!(Span::from("hot".to_owned()).bytes(), Ok(0));
        assert_eq!(Span::from("64KiB".to_owned()).bytes(), Ok(64 << 10));
        assert!(Span::from("l9".to_owned()).bytes().unwrap_err().contains("l9"));
        for level in [Span::L1, Span::L2, Span::Dram] {
            match level.bytes() {
                Ok(bytes) => assert!(bytes >= 1 << 10, "{level:?}: {bytes}"),
                Err(reason) => assert!(reason.contains("name a size"), "{reason}"),
            }
        }
        assert!(room_for(usize::MAX).is_err());
        assert_eq!(room_for(1 << 10), Ok(()));
    }
}
