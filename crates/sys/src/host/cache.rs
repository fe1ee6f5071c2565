//! The first processor's data caches, as the kernel lists them in sysfs, and the one that every start
//! asks for, as the C library knows it.

use std::{fs, path::Path};

/// A cache that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cache {
    /// 1 is nearest to the processor.
    pub level: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The caches, nearest first; empty where the kernel does not tell.
pub fn caches() -> Vec<Cache> {
    caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

/// The size of the second cache. The C library asked the processor when the process began; sysfs,
/// which takes dozens of calls, is read only where it does not know.
pub fn second_cache() -> Option<u64> {
    // <bits/confname.h> of glibc; other libraries answer -1.
    const SC_LEVEL2_CACHE_SIZE: libc::c_int = 191;
    // SAFETY: sysconf takes any number and touches no memory of ours.
    let told = unsafe { libc::sysconf(SC_LEVEL2_CACHE_SIZE) };
    let told = u64::try_from(told).ok().filter(|bytes| *bytes > 0);
    told.or_else(|| caches().into_iter().find(|cache| cache.level == 2).map(|cache| cache.bytes))
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
    // The kernel writes whole KiB.
    let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    Some(Cache { level, bytes: kib.checked_mul(1024)? }).filter(|cache| cache.bytes > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_c_library_and_the_kernel_speak_of_the_same_second_cache() {
        let listed = caches().into_iter().find(|cache| cache.level == 2).map(|cache| cache.bytes);
        assert!(listed.is_none() || second_cache() == listed, "{listed:?} {:?}", second_cache());
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
