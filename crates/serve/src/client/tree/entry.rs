//! An entry of a tree's list, with its path below the fetched directory.

use std::ffi::{CStr, CString};

use thalweg_core::atomic_file::name::is_reserved;
use thalweg_tree::install::EntryXattrs;

use crate::manifest::{ManifestEntry, ManifestKind, Meta};

/// An entry of the list, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Path below the fetched directory: names separated by single slashes; empty for that directory itself.
    pub path: Vec<u8>,
    pub kind: ManifestKind,
    pub meta: Meta,
    pub xattrs: EntryXattrs,
}

/// Longest path, in bytes.
pub const LONGEST_PATH: usize = (64 << 10) - 1;

impl ListedEntry {
    /// Converts an entry that is listed in `directory`. Fails if its path is too long.
    pub fn of(directory: &[u8], entry: ManifestEntry) -> Result<Self, &'static str> {
        let ManifestEntry { name, kind, meta, xattrs, shared_node: _ } = entry;
        let path = if directory.is_empty() { name } else { [directory, b"/", &name].concat() };
        if path.len() > LONGEST_PATH {
            return Err("a path is longer than 65535 bytes");
        }
        Ok(Self { path, kind, meta, xattrs })
    }

    /// Returns the path of the directory that contains the entry.
    pub fn directory(&self) -> &[u8] {
        let cut = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &self.path[..cut]
    }

    /// Returns the last component of the path.
    pub fn name(&self) -> CString {
        CString::new(self.name_bytes()).expect("a NUL was refused")
    }

    /// Returns the last component of the path as bytes, for comparisons.
    pub fn name_bytes(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

/// Returns `true` if a name is reserved for partial files. The next run would take such an entry for a partial
/// file.
pub fn is_reserved_name(name: &[u8]) -> bool {
    name.starts_with(b".") && CString::new(name).is_ok_and(|name| is_reserved(&name))
}

/// Returns `true` if a symbolic link in `directory` cannot lead out of the fetched directory, whatever other links
/// exist. `..` is allowed only at the start of the target, where it leads through real directories. A later `..` may
/// follow the name of another link, so its result is unknown.
pub fn stays_inside(directory: &[u8], target: &CStr) -> bool {
    let mut depth = if directory.is_empty() { 0 } else { directory.split(|b| *b == b'/').count() };
    let target = target.to_bytes();
    let mut is_in_front = true;
    !target.is_empty()
        && !target.starts_with(b"/")
        && target.split(|byte| *byte == b'/').all(|name| match name {
            b"" | b"." => true,
            b".." if is_in_front && depth > 0 => {
                depth -= 1;
                true
            }
            b".." => false,
            _ => {
                is_in_front = false;
                true
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_only_if_nothing_on_its_way_can_lead_out() {
        let stays = |directory: &str, target: &str| {
            stays_inside(directory.as_bytes(), &CString::new(target).unwrap())
        };
        for (directory, target) in [("", "a"), ("", "./a//b/"), ("a/b", "../../c"), ("a", "..")] {
            assert!(stays(directory, target), "{directory} {target}");
        }
        for (directory, target) in [
            ("", ".."),
            ("", "/etc"),
            ("a", "../.."),
            ("", "a/.."),
            ("a/b", "../x/../.."),
            ("", ""),
        ] {
            assert!(!stays(directory, target), "{directory} {target}");
        }
    }
}
