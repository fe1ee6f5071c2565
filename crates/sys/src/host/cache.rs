//! Sizes of the first processor's data caches. They come from sysfs, or from the C library for the first two levels.

use std::{fs, path::Path, sync::OnceLock};

/// A cache that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cache {
    /// The level; 1 is nearest to the processor.
    pub level: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

const LISTED: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Returns the caches, nearest first; empty if the kernel does not list them. The result is kept, because finding it
/// requires reading a dozen files.
pub fn caches() -> &'static [Cache] {
    static FOUND: OnceLock<Vec<Cache>> = OnceLock::new();
    FOUND.get_or_init(|| caches_in(Path::new(LISTED)))
}

/// Returns the size of the largest cache, in bytes.
pub fn largest_cache() -> Option<u64> {
    caches().iter().map(|cache| cache.bytes).max()
}

/// Returns the size of the second-level cache; see [`cache_size`].
pub fn second_cache() -> Option<u64> {
    cache_size(2)
}

/// Returns the size of the data cache of a level; 1 is the first. For the first two levels, the C library read the
/// processor's own values when the process began, which saves a dozen calls for sysfs. The size of the third level
/// comes from sysfs. The C library scales that size by its estimate of the processors that share the cache, and reports
/// ten times the size to some guests.
pub fn cache_size(level: u32) -> Option<u64> {
    // <bits/confname.h> of glibc. Other libraries return -1.
    const SC_LEVEL1_DCACHE_SIZE: libc::c_int = 188;
    const SC_LEVEL2_CACHE_SIZE: libc::c_int = 191;
    let told = match level {
        1 => sysconf(SC_LEVEL1_DCACHE_SIZE),
        2 => sysconf(SC_LEVEL2_CACHE_SIZE),
        // The usual index in sysfs: the two first-level caches have the indices 0 and 1.
        _ => cache(&Path::new(LISTED).join(format!("index{level}")))
            .filter(|cache| cache.level == level)
            .map(|cache| cache.bytes),
    };
    told.or_else(|| caches().iter().find(|cache| cache.level == level).map(|cache| cache.bytes))
}

fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: sysconf accepts any number and does not touch memory of ours.
    u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|value| *value > 0)
}

fn caches_in(folder: &Path) -> Vec<Cache> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut caches: Vec<Cache> = entries.filter_map(|entry| cache(&entry.path())).collect();
    caches.sort();
    caches.dedup();
    caches
}

fn cache(folder: &Path) -> Option<Cache> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    if read("type")?.trim() == "Instruction" {
        return None;
    }
    let (level, size) = (read("level")?.trim().parse().ok()?, read("size")?);
    // The kernel writes multiples of KiB.
    let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    Some(Cache { level, bytes: kib.checked_mul(1024)? }).filter(|cache| cache.bytes > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_c_library_and_the_kernel_speak_of_the_same_caches() {
        for cache in caches() {
            assert_eq!(cache_size(cache.level), Some(cache.bytes), "level {}", cache.level);
        }
        assert_eq!((cache_size(0), cache_size(5)), (None, None));
    }

    #[test]
    fn data_caches_are_listed_nearest_first_and_nonsense_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |name: &str, level: &str, kind: &str, size: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(path.join(file), text).unwrap();
            }
        };
        entry("index3", "3\n", "Unified\n", "32768K\n");
        entry("index0", "1\n", "Data\n", "48K\n");
        entry("index1", "1\n", "Instruction\n", "32K\n");
        entry("index4", "4\n", "Unified\n", "lots\n");
        entry("index5", "5\n", "Unified\n", "99999999999999999999K\n");
        let found = caches_in(folder.path());
        assert_eq!(
            found,
            [Cache { level: 1, bytes: 48 << 10 }, Cache { level: 3, bytes: 32 << 20 }]
        );
        assert!(caches_in(&folder.path().join("none")).is_empty());
    }
}
