//! The memory that the control groups (cgroups) of this process allow it to use.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The mount points of one cgroup version, and the names of its files.
struct CgroupVersion {
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    reclaimable: &'static str,
}

const ONE: CgroupVersion = CgroupVersion {
    mounts: &["/sys/fs/cgroup/memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};
const TWO: CgroupVersion = CgroupVersion {
    mounts: &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: "inactive_file",
};

/// Returns the number of bytes that this process may still allocate under the limits of its groups.
/// Reclaimable page cache counts as free. `None` if no limit is visible. The first call determines
/// which groups have limits.
pub(super) fn memory_left() -> Option<u64> {
    static LIMITED: OnceLock<Vec<(PathBuf, &'static CgroupVersion)>> = OnceLock::new();
    let limited = LIMITED.get_or_init(|| {
        let told = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut limited = Vec::new();
        for (version, path) in groups(&told) {
            for mount in version.mounts {
                let folders = chain(Path::new(mount), path).into_iter();
                let folders = folders.filter(|folder| left_in(folder, version).is_some());
                limited.extend(folders.map(|folder| (folder, version)));
            }
        }
        limited
    });
    limited.iter().filter_map(|(folder, version)| left_in(folder, version)).min()
}

/// Returns the groups, of either version, that may limit memory, with their paths.
fn groups(told: &str) -> impl Iterator<Item = (&'static CgroupVersion, &str)> {
    told.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => Some((&TWO, path)),
            some if some.split(',').any(|name| name == "memory") => Some((&ONE, path)),
            _ => None,
        }
    })
}

/// Returns a group's directory and its parents. In a container, the path may be one on the host
/// that does not exist here. The mount point still exists.
fn chain(mount: &Path, path: &str) -> Vec<PathBuf> {
    let group = mount.join(path.trim_start_matches('/'));
    let above = group.ancestors().take_while(|folder| folder.starts_with(mount));
    above.map(Path::to_owned).collect()
}

fn left_in(folder: &Path, version: &CgroupVersion) -> Option<u64> {
    let number = |name| read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // "max" is not a number, and a limit of 2^62 bytes or more means no limit.
    let limit = number(version.limit).filter(|limit| *limit < 1 << 62)?;
    let usage = number(version.usage)?;
    let told = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let reclaimable = field(&told, version.reclaimable).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

fn field(told: &str, name: &str) -> Option<u64> {
    told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn groups_of_both_versions_are_found() {
        let told = "9:name=systemd:/x\n4:memory,hugetlb:/a/b\n0::/c\n3:cpuset:/\nnoise\n";
        let found: Vec<_> = groups(told).map(|(version, path)| (version.limit, path)).collect();
        assert_eq!(found, [(ONE.limit, "/a/b"), (TWO.limit, "/c")]);
        assert_eq!(field("cache 5\ninactive_file 7\n", "inactive_file"), Some(7));
        assert_eq!(field("total_inactive_file 7\n", "inactive_file"), None);
    }

    #[test]
    fn the_tightest_of_the_groups_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = mount.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let left = |path| {
            let folders = chain(mount.path(), path);
            folders.iter().filter_map(|folder| left_in(folder, &TWO)).min()
        };
        assert_eq!(left("/a/b"), None);
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 1\ninactive_file 100\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "5\n");
        assert_eq!(left("/a/b"), Some(400));
        write("a/b/memory.max", "200\n");
        assert_eq!(left("/a/b"), Some(195));
        assert_eq!(left("/a/b/hidden"), Some(195));
        assert_eq!(left("/"), None);
    }
}
